"""A client of the anthropic package adds and removes tools while its tool runner runs."""

from __future__ import annotations

from typing import Any

from anthropic import beta_async_tool

from moonshim.simulator import IntendedCall, IntendedResponse, SimRequest, Simulator
from tests.support.gateway.hosts import run
from tests.support.gateway.running import config_for, running


class Caller:
    """Calls each tool that it has and has not called yet, then says that it is done."""

    def reply(self, question: SimRequest) -> IntendedResponse:
        called = {call.name for call in question.history}
        left = [tool.name for tool in question.tools if tool.name not in called]
        calls = (IntendedCall(left[0], "{}"),) if left else ()
        return IntendedResponse(reasoning="Hm.", text="Done." if not calls else "", calls=calls)


def test_the_tool_runner_of_the_package_adds_and_removes_tools() -> None:
    async def test() -> None:
        ran: list[str] = []

        @beta_async_tool
        async def first() -> str:
            """The first tool."""
            ran.append("first")
            runner.add_tools(second)
            runner.remove_tools(never)
            return "It worked."

        @beta_async_tool
        async def second() -> str:
            """The second tool."""
            ran.append("second")
            return "It worked too."

        @beta_async_tool
        async def never() -> str:
            """A tool that is removed before it is called."""
            ran.append("never")
            return "Too late."

        async with Simulator(model=Caller()) as host:
            async with running(config_for(host.url, models=("kimi-k3",))) as gateway, gateway.anthropic() as client:
                runner: Any = client.beta.messages.tool_runner(
                    model="kimi-k3",
                    max_tokens=999,
                    messages=[{"role": "user", "content": "Go."}],
                    tools=[first, never],
                    betas=["mid-conversation-tool-changes-2026-07-01", "inline-tools-2026-09-15"],
                )
                final = await runner.until_done()
            offered = [[tool.name for tool in seen.request.tools] for seen in host.requests if seen.request is not None]
        assert ran == ["first", "second"]
        assert final.content[-1].text == "Done."
        assert offered == [["first", "never"], ["first", "second"], ["first", "second"]]
        assert not any("tool_addition" in str(seen.body) for seen in host.requests)

    run(test())
