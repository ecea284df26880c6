"""Prompts of token ids: for the templates of public model families either exactly what the template says, or a reason why not."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gymdata.rollouts.bridge import Bridge, Prompt, Refused, Server, Unbridgeable, of_items
from gymdata.rollouts.chat import ReasoningStyle
from tests.servers.templated import CannotRender, control, decode, encode, render, spell

TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]


def server(template: str, tools: Any = None, **kwargs: Any) -> Server:
    async def rendered(messages: Sequence[Mapping[str, Any]], begin: bool) -> list[int]:
        try:
            return render(template, messages, begin, tools=tools, **kwargs)
        except CannotRender as error:
            raise Refused(str(error)) from error

    async def text(ids: list[int]) -> str:
        return decode(ids)

    return Server(rendered, text, f"{template} {tools} {kwargs}".encode(), tools or ())


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}], **more}


def asked(text: str, role: str = "user") -> dict[str, Any]:
    return {"type": "message", "role": role, "content": text}


def called(name: str = "add", arguments: str = '{"one": 1}', **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": "c", "name": name, "arguments": arguments, **more}


RESULT = {"type": "function_call_output", "call_id": "c", "output": "the result"}


def with_ids(item: dict[str, Any], prompt: str, sampled: list[int]) -> dict[str, Any]:
    ids = {"prompt_token_ids": encode(prompt), "generation_token_ids": sampled, "generation_log_probs": [-1.0] * len(sampled)}
    return {**item, **ids}


def bridged(items: list[dict[str, Any]], to: Server, ends: Sequence[str] = (), style: ReasoningStyle = "tags") -> Any:
    bridge = Bridge()
    bridge.ends |= {control(end) for end in ends}
    conversation = of_items({"input": items}, style)
    return asyncio.run(bridge.prompt(conversation, to)) if conversation else None


def continued(template: str, before: list[dict[str, Any]], reply: dict[str, Any], text: str, after: list[dict[str, Any]], *, end: str = "",
              ends: Sequence[str] | None = None, tools: Any = None, **kwargs: Any) -> Any:  # fmt: skip
    """What follows the sampled text in the next prompt, as text; or why there is none."""
    to = server(template, tools, **kwargs)
    told = [{"role": item["role"], "content": item["content"]} for item in before]
    prompt = decode(render(template, told, True, tools=tools, **kwargs))
    sampled = spell(text + end)
    made = bridged([*before, with_ids(reply, prompt, sampled), *after], to, [end] if ends is None and end else ends or ())
    if isinstance(made, Prompt):
        assert made.ids[: made.prefix] == encode(prompt) + sampled
        return decode(made.ids[made.prefix :])
    return made


QUESTION, AGAIN = [asked("what is it?")], [asked("and then?")]
SYSTEM = [asked("Be brief.", "system"), *QUESTION]
HERMES = '<tool_call>\n{"name": "add", "arguments": {"one": 1}}\n</tool_call>'
LLAMA = '{"name": "add", "parameters": {"one": 1}}'
MISTRAL = '[TOOL_CALLS][{"name": "add", "arguments": {"one": 1}}]'
DEEPSEEK = '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n{"one": 1}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
CHATML_USER = "<|im_start|>user\nand then?<|im_end|>\n<|im_start|>assistant\n"
COMMAND_USER = "<|im_start|>user\nand then?<|im_end|><|im_start|>assistant\n"
CHATML_TOOL = "<|im_start|>user\n<tool_response>\nthe result\n</tool_response><|im_end|>\n<|im_start|>assistant\n"

LLAMA_TOOL = (
    '<|start_header_id|>ipython<|end_header_id|>\n\n"the result"<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n'
)


@pytest.mark.parametrize(
    ("template", "end", "glue"),
    [
        ("qwen2_5", "<|im_end|>", "\n" + CHATML_USER),
        ("qwen3", "<|im_end|>", "\n" + CHATML_USER),
        ("llama3_1", "<|eot_id|>", "<|start_header_id|>user<|end_header_id|>\n\nand then?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"),
        ("mistral", "</s>", "[INST]and then?[/INST]"),
        ("gemma", "<end_of_turn>", "\n<start_of_turn>user\nand then?<end_of_turn>\n<start_of_turn>model\n"),
        ("deepseek_r1", "<｜end▁of▁sentence｜>", "<｜User｜>and then?<｜Assistant｜><think>\n"),
        ("phi", "<|end|>", "\n<|user|>\nand then?<|end|>\n<|assistant|>\n"),
        ("glm", "<|user|>", "\nand then?<|assistant|>\n"),
        ("command", "<|end|><|im_end|>", COMMAND_USER),
        ("command", "<|im_end|>", COMMAND_USER),
        ("command", "<|end|>", "<|im_end|>" + COMMAND_USER),
        ("strict", "<|im_end|>", "\n" + CHATML_USER),
    ],
)  # fmt: skip
def test_after_a_reply_that_ended_the_template_goes_on(template: str, end: str, glue: str) -> None:
    last = [end[end.rindex("<") :]]
    assert continued(template, QUESTION, said("the thing"), "the thing", AGAIN, end=end, ends=last) == glue


@pytest.mark.parametrize(
    ("template", "glue"),
    [
        ("qwen2_5", "<|im_end|>\n" + CHATML_USER),
        ("llama3_1", "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nand then?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"),
        ("mistral", "</s>[INST]and then?[/INST]"),
        ("gemma", "<end_of_turn>\n<start_of_turn>user\nand then?<end_of_turn>\n<start_of_turn>model\n"),
        ("deepseek_r1", "<｜end▁of▁sentence｜><｜User｜>and then?<｜Assistant｜><think>\n"),
        ("phi", "<|end|>\n<|user|>\nand then?<|end|>\n<|assistant|>\n"),
        ("glm", "<|user|>\nand then?<|assistant|>\n"),
        ("command", "<|end|><|im_end|>" + COMMAND_USER),
        ("alpaca", "\n\n### user:\nand then?\n\n### assistant:\n"),
    ],
)  # fmt: skip
def test_a_reply_that_was_cut_short_is_ended_as_the_template_does(template: str, glue: str) -> None:
    cut = said("the thi", status="incomplete")
    assert continued(template, QUESTION, cut, "the thi", AGAIN) == glue
    assert continued(template, QUESTION, said("the thi"), "the thi", AGAIN) == glue  # a stop text ended it


def test_a_reply_cut_short_after_a_line_feed_is_still_ended() -> None:
    """The line feed that ends it is not the one that the template puts after the end of a turn."""
    assert continued("qwen2_5", QUESTION, said("the\n"), "the\n", AGAIN, ends=["<|im_end|>"]) == "<|im_end|>\n" + CHATML_USER


@pytest.mark.parametrize(
    ("template", "text", "end", "glue"),
    [
        ("qwen2_5", HERMES, "<|im_end|>", "\n" + CHATML_TOOL),
        ("qwen3", f"<think>\nhm\n</think>\n\n{HERMES}", "<|im_end|>", "\n" + CHATML_TOOL),
        ("llama3_1", LLAMA, "<|eot_id|>", LLAMA_TOOL),
        ("mistral", MISTRAL, "</s>", '[TOOL_RESULTS]{"content": "the result"}[/TOOL_RESULTS]'),
        ("deepseek_r1", f"hm</think>{DEEPSEEK}", "<｜end▁of▁sentence｜>",
         "<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>the result<｜tool▁output▁end｜><｜tool▁outputs▁end｜>"),
        ("glm", "<tool_call>add\n<arg_key>one</arg_key>\n<arg_value>1</arg_value>\n</tool_call>", "<|observation|>", "\nthe result<|assistant|>\n"),
    ],
)  # fmt: skip
def test_results_of_tools_follow_calls(template: str, text: str, end: str, glue: str) -> None:
    assert continued(template, QUESTION, called(), text, [RESULT], end=end, tools=TOOLS) == glue


def test_a_call_that_was_cut_short_is_ended_where_the_template_ends_turns() -> None:
    """Of two calls the second was not finished: the text as it was sampled stays, the turn is ended after it."""
    text = HERMES + '\n<tool_call>\n{"na'
    cut = called(status="incomplete")
    assert continued("qwen2_5", QUESTION, cut, text, [RESULT], tools=TOOLS, ends=["<|im_end|>"]) == "<|im_end|>\n" + CHATML_TOOL


@pytest.mark.parametrize(("template", "text"), [("llama3_1", "the thing"), ("qwen2_5", "the thing")])
def test_another_end_than_the_templates_stands_for_it(template: str, text: str) -> None:
    """A model may have several ends of a turn; that it was one is known from the server."""
    end = {"llama3_1": "<|eom_id|>", "qwen2_5": "<|endoftext|>"}[template]
    usual = {"llama3_1": "<|eot_id|>", "qwen2_5": "<|im_end|>"}[template]
    assert continued(template, QUESTION, said(text), text, AGAIN, end=end) == continued(
        template, QUESTION, said(text), text, AGAIN, end=usual
    )


def test_what_may_be_an_end_or_not_is_refused() -> None:
    why = continued("llama3_1", QUESTION, said("the thing"), "the thing", AGAIN, end="<|eom_id|>", ends=[])
    assert isinstance(why, Unbridgeable) and why.reason == "unknown_end"
    why = continued("glm", QUESTION, said("the thing"), "the thing", AGAIN, end="<|observation|>")
    assert why.reason == "unknown_end"  # the template goes on with <|user|>
    why = continued("command", QUESTION, said("the thing"), "the thing", AGAIN, end="<|endoftext|>")
    assert why.reason == "unknown_end"  # for one of the two tokens that end its turns, or for both


def test_reasoning_that_the_template_strips_stays_as_it_was_sampled() -> None:
    text = "<think>\nsome thought\n</think>\n\nthe thing"
    assert continued("qwen3", QUESTION, said(text), text, AGAIN, end="<|im_end|>") == "\n" + CHATML_USER
    again = continued("deepseek_r1", QUESTION, said(text), text, AGAIN, end="<｜end▁of▁sentence｜>")
    assert again == "<｜User｜>and then?<｜Assistant｜><think>\n"


def test_arguments_of_the_template_are_kept() -> None:
    glue = continued("qwen3", QUESTION, said("the thing"), "the thing", AGAIN, end="<|im_end|>", enable_thinking=False)
    assert glue == "\n" + CHATML_USER + "<think>\n\n</think>\n\n"


@pytest.mark.parametrize(
    ("template", "before", "tools", "after", "reason"),
    [
        ("mistral", QUESTION, TOOLS, AGAIN, "history_rewritten"),  # tools move to the last question
        ("mistral", SYSTEM, None, AGAIN, "history_rewritten"),  # the system message does
        ("strict", SYSTEM, None, AGAIN, "history_rewritten"),
        ("window", QUESTION, None, [*AGAIN, asked("more")], "turn_dropped"),
        ("window", SYSTEM, None, AGAIN, "history_rewritten"),
        ("phi", QUESTION, TOOLS, [RESULT], "message_dropped"),
        ("gemma", QUESTION, TOOLS, [RESULT], "template_error"),
        ("lfm2", QUESTION, TOOLS, AGAIN, "call_format"),  # a call in the reply would stay text
    ],
)
def test_what_the_template_does_not_let_through_is_refused_with_the_reason(
    template: str, before: list[Any], tools: Any, after: list[Any], reason: str
) -> None:
    why = continued(template, before, said("the thing"), "the thing", after, end="<|im_end|>", tools=tools)
    assert isinstance(why, Unbridgeable) and why.reason == reason, why


def test_thoughts_that_are_not_in_think_tags_are_found_out() -> None:
    """The server told them from the text; of a reply to ids they would be part of the answer."""
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
    prompt = decode(render("qwen2_5", [{"role": "user", "content": "what is it?"}], True, tools=None))

    def after(text: str) -> Any:
        items = [*QUESTION, thought, with_ids(said("it"), prompt, spell(f"{text}<|im_end|>")), *AGAIN]
        return bridged(items, server("qwen2_5"), ["<|im_end|>"], "field")

    assert isinstance(after("<think>hm</think>it"), Prompt)
    assert after("[THINK]hm[/THINK]it").reason == "reasoning_format"
    cut_off = with_ids(thought, prompt, spell("<think>hm"))
    assert isinstance(bridged([*QUESTION, cut_off, *AGAIN], server("qwen2_5"), ["<|im_end|>"], "field"), Prompt)


def test_calls_that_the_server_reads_and_we_do_not_are_found_out() -> None:
    """As with a template that tells nothing of calls, and a server that was told how the model writes them."""
    why = continued(
        "qwen2_5", QUESTION, called(), "<|tool_call_start|>[add(one=1)]<|tool_call_end|>", [RESULT], end="<|im_end|>", tools=TOOLS
    )
    assert why.reason == "call_format"


def test_images_are_no_token_ids() -> None:
    picture = {"role": "user", "content": [{"type": "input_image", "image_url": "data:"}, {"type": "input_text", "text": "?"}]}
    assert continued("qwen2_5", QUESTION, said("it"), "it", [picture], end="<|im_end|>").reason == "parts"


def test_a_server_that_renders_in_another_way_than_for_chat_is_found_out() -> None:
    items = [*QUESTION, with_ids(said("it"), "another prompt", spell("it")), *AGAIN]
    assert bridged(items, server("qwen2_5")).reason == "rendering_differs"


def test_the_bridge_begins_at_the_latest_message_with_ids_and_keeps_those_after_it() -> None:
    """What was put into the model's mouth afterwards is told as the template tells it, with all that stands between."""
    glue = continued(
        "qwen2_5", QUESTION, said("the thing"), "the thing", [*AGAIN, said("canned"), asked("what?")], end="<|im_end|>"
    )
    assert glue == (
        "\n<|im_start|>user\nand then?<|im_end|>\n<|im_start|>assistant\ncanned<|im_end|>\n"
        "<|im_start|>user\nwhat?<|im_end|>\n<|im_start|>assistant\n"
    )
    glue = continued("qwen2_5", QUESTION, said("the thing"), "the thing", [said("canned")], end="<|im_end|>")
    assert glue == "\n<|im_start|>assistant\ncanned<|im_end|>\n<|im_start|>assistant\n"


def test_several_turns_make_one_sequence() -> None:
    to, bridge = server("qwen2_5", TOOLS), Bridge()
    bridge.ends.add(control("<|im_end|>"))
    items: list[dict[str, Any]] = [*SYSTEM]
    ids = render(
        "qwen2_5", [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "what is it?"}], True, tools=TOOLS
    )
    for turn in range(6):
        sampled = spell(f"thin{turn} {HERMES}<|im_end|>")
        three = {"prompt_token_ids": ids, "generation_token_ids": sampled, "generation_log_probs": [-1.0] * len(sampled)}
        items += [said(f"thin{turn}"), called(**three), RESULT]
        conversation = of_items({"input": items}, "tags")
        assert conversation
        made = asyncio.run(bridge.prompt(conversation, to))
        assert isinstance(made, Prompt) and made.ids[: made.prefix] == ids + sampled
        assert decode(made.ids[made.prefix :]) == "\n" + CHATML_TOOL
        ids = made.ids


def test_calls_whose_arguments_were_no_json_do_not_stand_in_the_way() -> None:
    torn = [called(arguments='{"one": '), RESULT, called(arguments="no JSON at all")]
    text = '<tool_call>\n{"name": "add", "arguments": "no JSON at all"}\n</tool_call><|im_end|>'
    prompt = decode(render("qwen2_5", [{"role": "user", "content": "what is it?"}], True, tools=TOOLS))
    first, second = with_ids(torn[0], prompt, spell("x<|im_end|>")), with_ids(torn[2], "anything", spell(text))
    made = bridged([*QUESTION, first, RESULT, second, RESULT], server("qwen2_5", TOOLS), ["<|im_end|>"])
    assert isinstance(made, Prompt) and decode(made.ids[made.prefix :]) == "\n" + CHATML_TOOL


def test_two_results_follow_two_calls_in_order() -> None:
    two = [called(), {**called(), "call_id": "d"}]
    results = [RESULT, {**RESULT, "call_id": "d", "output": "another result"}]
    prompt = decode(render("qwen2_5", [{"role": "user", "content": "what is it?"}], True, tools=TOOLS))
    items = [*QUESTION, two[0], with_ids(two[1], prompt, spell(f"{HERMES}\n{HERMES}<|im_end|>")), *results]
    made = bridged(items, server("qwen2_5", TOOLS), ["<|im_end|>"])
    assert isinstance(made, Prompt)
    assert decode(made.ids[made.prefix :]).index("the result") < decode(made.ids[made.prefix :]).index("another result")


WORDS = st.text("abcdeh nrtil.,:{}\"'\n", min_size=1, max_size=24).map(lambda text: f"a{text}z")
STEPS = st.lists(st.tuples(WORDS, WORDS, st.sampled_from(["ended", "cut", "called"])), min_size=1, max_size=4)
ENDS = {
    "qwen2_5": "<|im_end|>",
    "llama3_1": "<|eot_id|>",
    "mistral": "</s>",
    "gemma": "<end_of_turn>",
    "phi": "<|end|>",
    "glm": "<|user|>",
}
CALLED = {"qwen2_5": "\n" + HERMES, "llama3_1": LLAMA, "mistral": MISTRAL}


@pytest.mark.parametrize("template", ENDS)
@settings(max_examples=40, deadline=None)
@given(steps=STEPS)
def test_ids_say_what_the_template_says_of_the_same_conversation(template: str, steps: list[tuple[str, str, str]]) -> None:
    """Whatever was said, cut short or called: the text of the ids is the template's, where this strips and moves nothing."""
    bridge, to = Bridge(), server(template)
    bridge.ends.add(control(ENDS[template]))
    items: list[dict[str, Any]] = [asked("what is it?")]
    told: list[dict[str, Any]] = [{"role": "user", "content": "what is it?"}]
    ids = render(template, told, True, tools=None)
    gap = " " if template == "mistral" else ""  # which this template puts before what is said
    for text, answer, kind in steps:
        if kind == "called" and template in CALLED:
            item, sampled, after = called(), CALLED[template] + ENDS[template], {**RESULT, "output": answer}
            call = {"id": "c", "type": "function", "function": {"name": "add", "arguments": '{"one": 1}'}}
            told += [
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c", "content": answer},
            ]
        else:
            item = said(text, status="incomplete") if kind == "cut" else said(text)
            sampled, after = gap + text + ("" if kind == "cut" else ENDS[template]), asked(answer)
            told += [{"role": "assistant", "content": text}, {"role": "user", "content": answer}]
        if template == "qwen2_5" and kind == "called":
            ids = ids[:-1]  # it begins a turn of nothing but calls without the line feed that ended the prompt
        spelled = spell(sampled)
        three = {"prompt_token_ids": ids, "generation_token_ids": spelled, "generation_log_probs": [-1.0] * len(spelled)}
        items += [{**item, **three}, after]
        if template == "qwen2_5" and kind == "called":
            bridge._fitting[to.template, True] = None
        conversation = of_items({"input": items}, "tags")
        assert conversation
        made = asyncio.run(bridge.prompt(conversation, to))
        assert isinstance(made, Prompt), made
        ids = made.ids
        assert decode(ids) == decode(render(template, told, True, tools=None))


@pytest.mark.parametrize("item", [said("the thing"), called()])
def test_what_was_found_of_a_shape_is_remembered_one_rendering_is_left(item: dict[str, Any]) -> None:
    rendered: list[int] = []
    to = server("qwen2_5", TOOLS)

    async def render_and_count(messages: Sequence[Mapping[str, Any]], begin: bool) -> list[int]:
        rendered.append(len(messages))
        return await to.render(messages, begin)

    counted, bridge = Server(render_and_count, to.text, to.template), Bridge()
    prompt = decode(render("qwen2_5", [{"role": "user", "content": "what is it?"}], True, tools=TOOLS))
    made = []
    for text in ("one thing", "another", "a third"):
        rendered.clear()
        conversation = of_items(
            {"input": [*QUESTION, with_ids(item, prompt, spell(f"{text}<|im_end|>")), RESULT, asked(text)]}, "tags"
        )
        assert conversation
        made.append(asyncio.run(bridge.prompt(conversation, counted)))
    assert len(rendered) == 1
    for text, one in zip(("one thing", "another", "a third"), made, strict=True):
        assert isinstance(one, Prompt) and f"user\n{text}<|im_end|>" in decode(one.ids[one.prefix :])


def test_without_ids_there_is_nothing_to_bridge() -> None:
    assert bridged([*QUESTION, said("it"), *AGAIN], server("qwen2_5")) is None
