"""A host profile and what the host reports -> the fields that describe a model's capabilities in `GET /v1/models`."""

from __future__ import annotations

from collections.abc import Container
from typing import Any, Final

from moonshim.documents import can_read_pdf
from moonshim.engine.hosts.profile import HostProfile, MediaKind
from moonshim.gateway.outbound.host_models import ReportedModel

__all__ = ["capability_fields"]

_LEVELS: Final = ("low", "medium", "high", "xhigh", "max")
_MEDIA: Final[tuple[MediaKind, ...]] = ("image", "audio", "video", "file")
_NO: Final = {"supported": False}


def capability_fields(
    profile: HostProfile, configured: Container[str], reported: ReportedModel, *, searches: bool = False
) -> dict[str, Any]:
    """The fields of Moonshot's, OpenRouter's and Anthropic's own lists, without those whose value is not known.

    `configured`: the fields of the profile that the user has set. They win over what the host reports; that wins over
    the profile, which knows only Kimi models. `searches`: the gateway runs web searches itself.
    """
    is_kimi = profile.generation != "other"
    media = _media(profile, configured, reported)
    thinks = _thinks(profile, configured, reported)
    fields: dict[str, Any] = {
        "supports_image_in": media["image"],
        "supports_video_in": media["video"],
        "supports_reasoning": thinks,
    }
    if all(value is not None for value in media.values()):
        accepted = [kind for kind in _MEDIA if media[kind]]
        fields["architecture"] = {"input_modalities": ["text", *accepted], "output_modalities": ["text"]}
    if is_kimi:
        can_disable = profile.can_disable and profile.thinking is not None
        fields["supports_tool_use"] = True
        fields["supports_thinking_type"] = ("both" if can_disable else "only") if thinks else "no"
        if thinks and profile.efforts:
            efforts = list(dict.fromkeys(profile.efforts.values()))
            fields["think_efforts"] = {"support": True, "valid_efforts": efforts}
        searches = searches or profile.web_search is not None
        fields["capabilities"] = _for_anthropic(
            profile, media, thinks=bool(thinks), can_disable=can_disable, searches=searches
        )
    return {name: value for name, value in fields.items() if value is not None}


def _media(profile: HostProfile, configured: Container[str], reported: ReportedModel) -> dict[MediaKind, bool | None]:
    """What reaches the model: the gateway removes or refuses media that the profile does not have."""
    if "media" in configured:
        return {kind: kind in profile.media for kind in _MEDIA}
    is_kimi = profile.generation != "other"
    of_host = {kind: reported.media.get(kind) for kind in _MEDIA}
    return {
        kind: (kind in profile.media and told is not False) if is_kimi or told is not None else None
        for kind, told in of_host.items()
    }


def _thinks(profile: HostProfile, configured: Container[str], reported: ReportedModel) -> bool | None:
    if "thinking" not in configured and reported.thinks is not None:
        return reported.thinks
    if profile.generation == "other" and "thinking" not in configured:
        return None
    return profile.thinking_default == "on" or profile.thinking not in (None, "passed")


def _for_anthropic(
    profile: HostProfile, media: dict[MediaKind, bool | None], *, thinks: bool, can_disable: bool, searches: bool
) -> dict[str, Any]:
    """Anthropic's `capabilities`. Clients expect every name, so what the gateway itself does not have is listed too."""
    has_effort = thinks and bool(profile.efforts)
    return {
        "batch": _NO,
        "citations": _NO,
        "code_execution": _NO,
        "context_management": _NO,
        "effort": _support(has_effort)
        | {level: _support(has_effort and level in profile.efforts) for level in _LEVELS},
        "image_input": _support(media["image"]),
        "pdf_input": _support(media["file"] or can_read_pdf()),  # as text, where the host takes no files
        "server_tools": _support(searches) | {"code_execution": _NO, "web_search": _support(searches)},
        "structured_outputs": _support(True),  # the gateway checks what the host does not guarantee
        "thinking": _support(thinks)
        | {
            "types": {
                "adaptive": _support(thinks),
                "between_tools": _NO,
                "disabled": _support(can_disable or not thinks),
                "enabled": _support(thinks),
            }
        },
    }


def _support(supported: bool | None) -> dict[str, Any]:
    return {"supported": bool(supported)}
