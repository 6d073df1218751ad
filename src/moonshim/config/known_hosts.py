"""The hosts that need no address: their names, key variables, base URLs and models, one row for each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

__all__ = ["INIT_HOSTS", "KNOWN_HOSTS", "KnownHost"]

_PART: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*")


class KnownHost(Struct, frozen=True, kw_only=True):
    """A host, and what a configuration for it needs."""

    name: str
    variable: str
    api_base_url: str
    """With `{VARIABLE}` for what depends on the account; `address_parts` has these variables."""
    models: tuple[str, ...] = ()
    """Only documented models; empty: any name under `name/`."""
    default: str | None = None
    """The model for Claude Code and Codex when they request their own models."""
    spellings: Mapping[str, str] = {}
    """From Moonshot's name of a model to this host's."""
    regions: tuple[str, ...] = ()
    """All its addresses, the default first, if each has keys of its own."""
    address_parts: Mapping[str, str] = {}
    """The usual variables of what the address depends on, and what each one is, for people."""

    @property
    def address_variable(self) -> str:
        """The variable that sets another address."""
        return self.name.upper().replace("-", "_") + "_BASE_URL"

    def address(self, parts: Mapping[str, str]) -> str:
        """The address with these parts, as far as they are there and valid.

        >>> host = next(host for host in INIT_HOSTS if host.name == "bedrock")
        >>> host.address({"AWS_REGION": "us-east-1"}), host.address({})[:31]
        ('https://bedrock-mantle.us-east-1.api.aws/v1', 'https://bedrock-mantle.{AWS_REG')
        """
        url = self.api_base_url
        for name in self.address_parts:
            value = parts.get(name, "").strip()
            url = url.replace(f"{{{name}}}", value) if self.part_fault(value) is None else url
        return url

    def missing_parts(self, url: str) -> dict[str, str]:
        """The parts that this address of the host still lacks."""
        return {name: what for name, what in self.address_parts.items() if f"{{{name}}}" in url}

    @staticmethod
    def part_fault(value: str) -> str | None:
        return None if _PART.fullmatch(value) else "expected letters, digits, dots and dashes"


_FIREWORKS: Final = "accounts/fireworks/models/"
_LOWER_CASE: Final = {
    name: f"moonshotai/{name}" for name in ("kimi-k3", "kimi-k3.1-pro", "kimi-k2.7-code", "kimi-k2.6", "kimi-k2.5")
}
_HUGGING_FACE: Final = {
    "kimi-k3": "moonshotai/Kimi-K3",
    "kimi-k2.7-code": "moonshotai/Kimi-K2.7-Code",
    "kimi-k2.6": "moonshotai/Kimi-K2.6",
    "kimi-k2.5": "moonshotai/Kimi-K2.5",
}
"""Hosts with the names of huggingface.co."""
KNOWN_HOSTS: Final = (
    KnownHost(
        name="moonshot",
        variable="MOONSHOT_API_KEY",
        api_base_url="https://api.moonshot.ai/v1",
        models=(
            "kimi-k3",
            "kimi-k3.1-pro",
            "kimi-k3.1-pro-highspeed",
            "kimi-k2.7-code",
            "kimi-k2.7-code-highspeed",
            "kimi-k2.6",
            "kimi-k2.5",
        ),
        default="kimi-k3",
    ),
    KnownHost(
        name="kimi",
        variable="KIMI_API_KEY",
        api_base_url="https://api.kimi.com/coding/v1",
        models=("kimi-for-coding", "kimi-for-coding-highspeed", "k3", "k3-256k", "k3.1-pro"),
        default="kimi-for-coding",
        regions=("https://api.kimi.com/coding/v1", "https://api.kimi.ai/coding/v1"),
    ),
    KnownHost(
        name="fireworks",
        variable="FIREWORKS_API_KEY",
        api_base_url="https://api.fireworks.ai/inference/v1",
        models=tuple(_FIREWORKS + name for name in ("kimi-k3", "kimi-k2p7-code", "kimi-k2p6", "kimi-k2p5")),
        default=f"{_FIREWORKS}kimi-k3",
        spellings={
            "kimi-k3": f"{_FIREWORKS}kimi-k3",
            "kimi-k2.7-code": f"{_FIREWORKS}kimi-k2p7-code",
            "kimi-k2.6": f"{_FIREWORKS}kimi-k2p6",
            "kimi-k2.5": f"{_FIREWORKS}kimi-k2p5",
        },
    ),
    KnownHost(
        name="openrouter",
        variable="OPENROUTER_API_KEY",
        api_base_url="https://openrouter.ai/api/v1",
        default="moonshotai/kimi-k3",
        spellings={
            name: f"moonshotai/{name}"
            for name in ("kimi-k3", "kimi-k2.7-code", "kimi-k2.6", "kimi-k2.5", "kimi-k2-thinking")
        },
    ),
    KnownHost(
        name="together",
        variable="TOGETHER_API_KEY",
        api_base_url="https://api.together.xyz/v1",
        default="moonshotai/Kimi-K3",
        spellings={
            "kimi-k3": "moonshotai/Kimi-K3",
            "kimi-k2.6": "moonshotai/Kimi-K2.6",
            "kimi-k2.5": "moonshotai/Kimi-K2.5",
        },
    ),
    KnownHost(
        name="siliconflow",
        variable="SILICONFLOW_API_KEY",
        api_base_url="https://api.siliconflow.cn/v1",
        default="moonshotai/Kimi-K2-Instruct",
    ),
    KnownHost(
        name="deepinfra",
        variable="DEEPINFRA_API_KEY",
        api_base_url="https://api.deepinfra.com/v1/openai",
        default="moonshotai/Kimi-K2.6",
        spellings={
            "kimi-k2.7-code": "moonshotai/Kimi-K2.7-Code",
            "kimi-k2.6": "moonshotai/Kimi-K2.6",
            "kimi-k2.5": "moonshotai/Kimi-K2.5",
        },
    ),
    KnownHost(
        name="groq",
        variable="GROQ_API_KEY",
        api_base_url="https://api.groq.com/openai/v1",
        default="moonshotai/kimi-k2-instruct-0905",
    ),
    KnownHost(
        name="nvidia",
        variable="NVIDIA_API_KEY",
        api_base_url="https://integrate.api.nvidia.com/v1",
        default="moonshotai/kimi-k2.6",
        spellings={"kimi-k3": "moonshotai/kimi-k3", "kimi-k2.6": "moonshotai/kimi-k2.6"},
    ),
)
"""Used without a file, as soon as the key is set. Do not add hosts whose keys people have for other models."""

# models.dev (providers/*/provider.toml and its models) has the variables, addresses and names of models, and
# "unverified" means that a row relies on nothing else and no other page was found. No row was tried with a real key.
INIT_HOSTS: Final = (
    # opencode.ai/docs/go and /zen; rig-core 0.46 and adk-model 2.3 use the same variable and addresses.
    KnownHost(
        name="opencode-go",
        variable="OPENCODE_API_KEY",
        api_base_url="https://opencode.ai/zen/go/v1",
        models=("kimi-k3", "kimi-k2.7-code", "kimi-k2.6", "kimi-k2.5"),
        default="kimi-k3",
    ),
    KnownHost(
        name="opencode-zen",
        variable="OPENCODE_API_KEY",
        api_base_url="https://opencode.ai/zen/v1",
        models=("kimi-k2.6", "kimi-k2.5"),
        default="kimi-k2.6",
    ),
    # vercel.com/docs/ai-gateway/sdks-and-apis/openai-chat-completions, vercel.com/ai-gateway/models.
    KnownHost(
        name="vercel",
        variable="AI_GATEWAY_API_KEY",
        api_base_url="https://ai-gateway.vercel.sh/v1",
        default="moonshotai/kimi-k3",
        spellings=_LOWER_CASE,
    ),
    # novita.ai/docs/api-reference, novita.ai/models.
    KnownHost(
        name="novita",
        variable="NOVITA_API_KEY",
        api_base_url="https://api.novita.ai/openai/v1",
        default="moonshotai/kimi-k3",
        spellings=_LOWER_CASE,
    ),
    # docs.baseten.co/inference/model-apis/overview.
    KnownHost(
        name="baseten",
        variable="BASETEN_API_KEY",
        api_base_url="https://inference.baseten.co/v1",
        default="moonshotai/Kimi-K3",
        spellings=_HUGGING_FACE,
    ),
    # docs.tokenfactory.nebius.com.
    KnownHost(
        name="nebius",
        variable="NEBIUS_API_KEY",
        api_base_url="https://api.tokenfactory.nebius.com/v1",
        default="moonshotai/Kimi-K3",
        spellings=_HUGGING_FACE,
    ),
    # docs.ollama.com/cloud. A server of your own is `--url http://localhost:11434/v1`.
    KnownHost(
        name="ollama-cloud",
        variable="OLLAMA_API_KEY",
        api_base_url="https://ollama.com/v1",
        models=("kimi-k3", "kimi-k2.7-code", "kimi-k2.6", "kimi-k2.5"),
        default="kimi-k3",
    ),
    # hexdocs.pm/langchain (ChatAwsMantle) has the variable, the address and K2.5; K3 at this address is unverified.
    KnownHost(
        name="bedrock",
        variable="AWS_BEARER_TOKEN_BEDROCK",
        api_base_url="https://bedrock-mantle.{AWS_REGION}.api.aws/v1",
        default="moonshotai.kimi-k2.5",
        spellings={"kimi-k3": "moonshotai.kimi-k3", "kimi-k2.5": "moonshotai.kimi-k2.5"},
        address_parts={"AWS_REGION": "AWS region, such as us-east-1"},
    ),
    # developers.cloudflare.com/workers-ai/configuration/open-ai-compatibility; kilocode#9530 for the token's variable;
    # auth-cloudflare 0.0.1 (docs.rs) for K2.7.
    KnownHost(
        name="cloudflare",
        variable="CLOUDFLARE_API_TOKEN",
        api_base_url="https://api.cloudflare.com/client/v4/accounts/{CLOUDFLARE_ACCOUNT_ID}/ai/v1",
        default="@cf/moonshotai/kimi-k2.6",
        spellings={name: f"@cf/moonshotai/{name}" for name in ("kimi-k2.7-code", "kimi-k2.6")},
        address_parts={"CLOUDFLARE_ACCOUNT_ID": "id of your Cloudflare account"},
    ),
    # help.aliyun.com/zh/model-studio/kimi-api. Keys belong to one region; whether each region lists its models at
    # /models is unverified.
    KnownHost(
        name="alibaba",
        variable="DASHSCOPE_API_KEY",
        api_base_url="https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        models=("kimi-k3", "kimi-k2.5"),
        default="kimi-k3",
        regions=(
            "https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
            "https://dashscope.aliyuncs.com/compatible-mode/v1",
        ),
    ),
    # volcengine.com/docs/82379/1298459. No page with the names of its Kimi models was found.
    KnownHost(name="volcengine", variable="ARK_API_KEY", api_base_url="https://ark.cn-beijing.volces.com/api/v3"),
    # kimi-code#950, learn.microsoft.com/azure/foundry. The model is the name that the deployment was given.
    KnownHost(
        name="azure",
        variable="AZURE_API_KEY",
        api_base_url="https://{AZURE_RESOURCE_NAME}.openai.azure.com/openai/v1",
        address_parts={"AZURE_RESOURCE_NAME": "name of your Azure Foundry resource"},
    ),
    # modal.com/docs/guide/endpoints; one endpoint serves one model. The variables are unverified.
    KnownHost(
        name="modal",
        variable="MODAL_PROXY_TOKEN",
        api_base_url="https://{MODAL_ENDPOINT_HOST}/v1",
        address_parts={"MODAL_ENDPOINT_HOST": "host name of your endpoint, such as me--kimi.modal.run"},
    ),
)
"""Offered by `moonshim init`, and by name if nothing is configured. A key alone does not start a gateway with them: it
may be there for other models, or the address needs more than the key."""
