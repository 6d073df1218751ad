"""A tool's schema, level by level -> the same schema in Moonshot's flavour, with the changes."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from moonshim.engine.request.schema.definitions import Definitions
from moonshim.engine.request.schema.keywords import ELSEWHERE, noted, supported, told
from moonshim.engine.request.schema.merge import NOTES, Joined, Json, Unsatisfiable, is_number, type_names
from moonshim.engine.request.schema.plain import RESERVED
from moonshim.engine.request.schema.values import WORDS_OF, enum_branches, enum_stands, kind_of, mend_ranges
from moonshim.engine.request.schema.weight import MOST_READ, own_weight, stepped, weight
from moonshim.engine.wire.json_fields import shortened
from moonshim.errors import CannotExpress

__all__ = ["MOST_BRANCHES", "Rewrite"]

MOST_BRANCHES: Final = 500
_MOST_NESTED: Final = 64
_COPIES: Final = 2000
"""Maximum number of duplicated levels; above that a constraint is dropped rather than repeated."""


class Rewrite:
    """Rewrites one schema; `changes` lists each change with its path.

    The new schema accepts every value that the given one accepts. Work is bounded by the size of the schema and a
    fixed number of copies, whose total size is limited too.
    """

    def __init__(self, root: Json, size: int, heavy: int, whose: str) -> None:
        """`size` is the number of objects and lists in the schema, `heavy` its weight."""
        self._whose = whose
        self._definitions = Definitions(root)
        self._visits = 0
        self._enough = size + _COPIES
        self._written = 0
        self._room = heavy + MOST_READ
        self._nested = 0
        self.changes: list[str] = []

    def whole(self, root: Json) -> Json:
        """The root with all definitions that it needs."""
        try:
            out = self._schema(root, "", frozenset())
        except Unsatisfiable as nothing:
            raise self._cannot(nothing.path or "", "no value is allowed by it") from None
        definitions: Json = {}
        while waiting := self._definitions.next_waiting():
            name, target, place = waiting
            try:
                definitions[name] = self._schema(target, place, frozenset())
            except Unsatisfiable as nothing:
                raise self._cannot(nothing.path or place, "no value is allowed by it") from None
        self._root_words(root, out, definitions)
        return out

    def _root_words(self, root: Json, out: Json, definitions: Json) -> None:
        if definitions:
            out["$defs"] = definitions
        if isinstance(root.get("$id"), str):
            out["$id"] = root["$id"]
        elif "$id" in root:
            self._changed("", "$id was left out, since it is no text")
        if "$defs" in root and not isinstance(root["$defs"], dict):
            self._changed("", "$defs was left out, since it is no object")
        if "definitions" in root:
            self._changed("", "definitions became $defs")
        for name in self._definitions.unused():
            self._changed(f"$defs.{name}", "was left out, since nothing refers to it")

    def _changed(self, path: str, what: str) -> None:
        self.changes.append(f"At path '{path or 'root'}': {what}")

    def _cannot(self, path: str, why: str) -> CannotExpress:
        return CannotExpress(f"{self._whose}: At path '{path or 'root'}': {why}", field="parameters")

    # --- one level ------------------------------------------------------------------------------------------------

    def _schema(self, raw: Any, path: str, inside: frozenset[str]) -> Json:
        """`inside`: the references inlined on the way here; none is inlined inside itself."""
        if self._nested >= _MOST_NESTED:
            raise self._cannot(path, f"it is nested deeper than {_MOST_NESTED} schemas")
        self._nested += 1
        try:
            words, inside = self._gathered(raw, path, inside)
            if "$ref" in words:
                return self._reference(words, path)
            if "anyOf" in words:
                return self._alternatives(words, path, inside)
            return self._typed(words, path, inside)
        except Unsatisfiable as nothing:
            nothing.path = nothing.path or path
            raise
        finally:
            self._nested -= 1

    def _gathered(self, raw: Any, path: str, inside: frozenset[str]) -> tuple[Json, frozenset[str]]:
        """Everything that applies on this level as one schema: `allOf`, and siblings of a reference."""
        joined = Joined()
        references: dict[str, None] = {}
        waiting: deque[Any] = deque([raw])
        entered = {*inside}
        while waiting:
            part = self._part(waiting.popleft(), path)
            if "allOf" in part:
                waiting.extendleft(reversed(self._all_of(part.pop("allOf"), path)))
            if "$ref" in part:
                references[self._local(part.pop("$ref"), path)] = None
            for word in joined.add(part):
                self._changed(path, f"{word} was left out on one side, since both cannot be said at once")
            if not waiting and references:
                written = self._written_out(joined, references, path, entered)
                if written is None:
                    break
                entered.add(written)
                waiting.append(self._definitions.target(written))
        words = joined.said()
        if references:
            words = {"$ref": next(iter(references)), **{word: words[word] for word in NOTES if word in words}}
        return words, inside if len(entered) == len(inside) else frozenset(entered)

    def _all_of(self, given: Any, path: str) -> list[Any]:
        if given is None:
            self._changed(path, "allOf was left out, since it is null")
            return []
        if not isinstance(given, list):
            raise self._cannot(path, "allOf must be an array")
        self._changed(path, "allOf was joined into one schema")
        return given

    def _part(self, raw: Any, path: str) -> Json:
        self._visits += 1
        self._written += own_weight(raw) if isinstance(raw, dict) else 1
        if self._visits > 2 * self._enough or self._written > 2 * self._room:
            raise self._cannot(path, "it becomes too large when all that it repeats is written out")
        if raw is False:
            raise Unsatisfiable
        if raw is True:
            self._changed(path, "true became an empty schema")
            return {}
        if not isinstance(raw, dict):
            raise self._cannot(path, "a schema must be an object")
        changes = [f"{word} was left out, since it may only stand at the root" for word in raw if word in ELSEWHERE]
        if not path:
            changes.clear()
        words = supported(raw, changes)
        if "type" in words:
            self._check_types(words, path)
        for change in changes:
            self._changed(path, change)
        return words

    def _local(self, reference: Any, path: str) -> str:
        if not isinstance(reference, str):
            raise self._cannot(path, "$ref must be a string")
        if not self._definitions.has(reference):
            raise self._cannot(path, f"$ref {shortened(reference)} leads to no schema of this document")
        return reference

    def _written_out(self, joined: Joined, references: dict[str, None], path: str, entered: set[str]) -> str | None:
        """Take a reference whose target must be merged with its siblings off the list, if there is one."""
        beside = others = joined.words() - {*NOTES}
        if len(references) == 1:
            target = self._definitions.target(next(iter(references)))
            if isinstance(target, dict):
                others = {word for word in beside if word not in target or not joined.says(word, target[word])}
            if not others:
                if beside:
                    self._changed(path, "what stands beside $ref was left out, since the reference says it too")
                return None
        chosen = next((each for each in references if each not in entered and each != "#"), None)
        if chosen is None or self._visits > self._enough or self._written > self._room:
            self._changed(path, f"{', '.join(sorted(others)) or 'a reference'} beside $ref was left out")
            return None
        del references[chosen]
        self._changed(path, f"{chosen} was written out, since more stands beside it")
        return chosen

    def _reference(self, words: Json, path: str) -> Json:
        reference = words.pop("$ref")
        pointer = self._definitions.name_of(reference)
        if pointer != reference:
            self._changed(path, f"$ref {reference} became {pointer}")
        notes = self._without_default(words, path, "$ref")
        if not notes:
            return {"$ref": pointer}
        if "default" not in words:
            self._changed(path, "$ref moved into anyOf, since nothing may stand beside it")
        return {"anyOf": [{"$ref": pointer}], **notes}

    def _without_default(self, words: Json, path: str, beside: str) -> Json:
        """The annotations of a level that cannot have a default: it moves into the description."""
        notes: Json = {word: words[word] for word in ("title", "description") if word in words}
        if "default" in words:
            note = told("default", words["default"])
            if note is not None:
                notes["description"] = noted(notes.get("description"), note)
            self._changed(path, f"default cannot stand beside {beside} and was {_where(note)}")
        return notes

    # --- alternatives ---------------------------------------------------------------------------------------------

    def _alternatives(self, words: Json, path: str, inside: frozenset[str]) -> Json:
        branches = words["anyOf"]
        if not isinstance(branches, list) or not all(isinstance(branch, dict | bool) for branch in branches):
            raise self._cannot(stepped(path, "anyOf"), "it must be an array of schemas")
        own = {word: value for word, value in words.items() if word not in NOTES and word != "anyOf"}
        if own:
            rest = self._shared(words, own, branches, path)
            if rest is not None:
                return self._typed(rest, path, inside)
            branches = [{"allOf": [own, branch]} for branch in branches]
            # Merging is reported once, here, and not for each branch.
            self._changed(path, f"{', '.join(sorted(own))} moved from beside anyOf into its schemas")
        out: list[Json] = []
        for branch in branches:
            before = len(self.changes)
            try:
                out.append(self._schema(branch, stepped(path, "anyOf"), inside))
            except Unsatisfiable:
                del self.changes[before:]
                self._changed(path, "a schema of anyOf that allows nothing was left out")
        if not out:
            raise Unsatisfiable
        return {"anyOf": self._grouped(out, path), **self._without_default(words, path, "anyOf")}

    def _shared(self, words: Json, own: Json, branches: list[Any], path: str) -> Json | None:
        """The schema without its alternatives, if they only repeat or only require properties; None if they must
        stay."""
        rest = {word: value for word, value in words.items() if word != "anyOf"}
        if any(branch is True or branch == {} for branch in branches):
            self._changed(path, "anyOf was left out, since one of its schemas allows everything")
            return rest
        requires = all(isinstance(b, dict) and b.keys() <= {"required", "title", "description"} for b in branches)
        visits = self._visits + (1 + _levels(own)) * len(branches)
        if not requires and visits <= self._enough and self._written + weight(own) * len(branches) <= self._room:
            return None
        note = told("anyOf", branches)
        if note is not None:
            rest["description"] = noted(rest.get("description"), note)
        self._changed(path, f"anyOf was {_where(note)}, so that what stands beside it need not be repeated")
        return rest

    def _grouped(self, branches: list[Json], path: str) -> list[Json]:
        while len(branches) > MOST_BRANCHES:
            starts = range(0, len(branches), MOST_BRANCHES)
            branches = [{"anyOf": branches[at : at + MOST_BRANCHES]} for at in starts]
            self._changed(path, f"anyOf was divided into groups of {MOST_BRANCHES}")
        return branches

    # --- types ----------------------------------------------------------------------------------------------------

    def _typed(self, words: Json, path: str, inside: frozenset[str]) -> Json:
        types = self._types(words, path)
        if "enum" in words:
            return self._enumerated(words, types, path, inside)
        if types is None:
            if not words.get("required") and (path or not words):
                return self._below(words, path, inside)
            self._changed(path, "type object was added")
            types = ["object"]
            words = {"type": "object", **words}
        if len(types) == 1:
            return self._single(words, types[0], path, inside)
        used = {name: {word: words[word] for word in words if word in WORDS_OF[name]} for name in types}
        if not any(used.values()):
            return {"type": types, **self._only_notes(words, path)}
        self._changed(path, "the types were divided over anyOf, each with its own keywords")
        branches = self._possible([{"type": name, **own} for name, own in used.items() if own], path, inside)
        if bare := [name for name, own in used.items() if not own]:
            branches.append({"type": bare[0] if len(bare) == 1 else bare})
        if not branches:
            raise Unsatisfiable
        return {"anyOf": branches, **self._without_default(words, path, "anyOf")}

    def _types(self, words: Json, path: str) -> list[str] | None:
        if "type" not in words:
            return None
        once = list(dict.fromkeys(type_names(words["type"])))
        if isinstance(words["type"], list) and len(once) < len(words["type"]):
            self._changed(path, "a type that was listed twice is listed once")
            words["type"] = once if len(once) > 1 else once[0]
        return once

    def _check_types(self, words: Json, path: str) -> None:
        if words["type"] == "any":
            del words["type"]
            self._changed(path, "type any was left out, since it allows everything")
            return
        names = type_names(words["type"])
        for name in names:
            if not isinstance(name, str) or name not in WORDS_OF:
                raise self._cannot(path, f"invalid type {shortened(name)}")
        if not names:
            raise self._cannot(path, "type array cannot be empty")

    def _only_notes(self, words: Json, path: str) -> Json:
        for word in [word for word in words if word not in NOTES and word != "type"]:
            self._changed(path, f"{word} was left out, since it says nothing about these types")
        return self._without_default(words, path, "several types")

    def _enumerated(self, words: Json, types: list[str] | None, path: str, inside: frozenset[str]) -> Json:
        values = words["enum"]
        if not isinstance(values, list):
            raise self._cannot(path, "enum must be an array")
        if any(kind_of(value) in ("integer", "number") and not is_number(value) for value in values):
            raise self._cannot(path, "enum has a number that is too large or none at all")
        if enum_stands(words, types) and values:
            return self._single(words, types[0], path, inside) if types and len(types) == 1 else dict(words)
        self._changed(path, "enum was divided by the types of its values" if values else "enum is empty")
        typed: list[Json] = []
        for branch in enum_branches(values, types):
            own = {word: words[word] for word in words if word in WORDS_OF[branch["type"]] and word != "enum"}
            typed.append({**own, **branch})
        branches = self._possible(typed, path, inside)
        if not branches:
            raise Unsatisfiable
        notes: Json = {word: words[word] for word in NOTES if word in words}
        if any(branch["type"] in ("object", "array") for branch in branches):
            note = told("enum", values)
            self._changed(path, f"values of an enum that are objects or arrays were {_where(note)}")
            if note is not None:
                notes["description"] = noted(notes.get("description"), note)
        if len(branches) == 1:
            return {**branches[0], **notes}
        return {"anyOf": self._grouped(branches, path), **self._without_default(notes, path, "anyOf")}

    def _possible(self, branches: list[Json], path: str, inside: frozenset[str]) -> list[Json]:
        """Each branch with one type; unsatisfiable ones are dropped."""
        out: list[Json] = []
        for branch in branches:
            try:
                out.append(self._single(branch, branch["type"], path, inside))
            except Unsatisfiable:
                self._changed(path, f"type {branch['type']} was left out, since nothing of it is allowed")
        return out

    def _single(self, words: Json, name: str, path: str, inside: frozenset[str]) -> Json:
        for word in [word for word in words if word not in WORDS_OF[name] | {*NOTES, "type"}]:
            self._changed(path, f"{word} was left out, since it says nothing about type {name}")
            words = {key: value for key, value in words.items() if key != word}
        out = self._below(words, path, inside)
        changes: list[str] = []
        mend_ranges(out, name, changes)
        for change in changes:
            self._changed(path, change)
        return out

    # --- what is below ----------------------------------------------------------------------------------------------

    def _below(self, words: Json, path: str, inside: frozenset[str]) -> Json:
        out = dict(words)
        if "pattern" in out and not isinstance(out["pattern"], str):
            del out["pattern"]
            self._changed(path, "pattern was left out, since it is no text")
        if "items" in out:
            self._items(out, path, inside)
        if "properties" in out or "required" in out:
            self._properties(out, path, inside)
        others = out.get("additionalProperties")
        if others is not None and not isinstance(others, bool):
            try:
                out["additionalProperties"] = self._schema(others, stepped(path, "additionalProperties"), inside)
            except Unsatisfiable:
                out["additionalProperties"] = False
                self._changed(path, "additionalProperties became false, since nothing fits it")
        elif "additionalProperties" in out and others is None:
            raise self._cannot(path, "additionalProperties must be a boolean or an object")
        return out

    def _items(self, out: Json, path: str, inside: frozenset[str]) -> None:
        try:
            items = out.pop("items")
            if items is True or items == {}:
                self._changed(path, "items was left out, since it allows everything")
                return
            below = self._schema(items, stepped(path, "items"), inside)
            if below:
                out["items"] = below
            else:
                self._changed(path, "items was left out, since what remains of it allows everything")
        except Unsatisfiable:
            self._changed(path, "items that nothing fits became maxItems 0")
            out["maxItems"] = 0

    def _properties(self, out: Json, path: str, inside: frozenset[str]) -> None:
        given, required = out.get("properties", {}), self._required(out, path)
        if not isinstance(given, dict):
            raise self._cannot(stepped(path, "properties"), "it must be an object")
        properties: Json = {}
        hidden: list[str] = []
        needed = {*required}
        for name, below in given.items():
            if name in RESERVED:
                hidden.append(name)
                continue
            before = len(self.changes)
            try:
                properties[name] = self._schema(below, stepped(path, "properties", name), inside)
            except Unsatisfiable:
                if name in needed:
                    raise
                del self.changes[before:]
                self._changed(path, f"property {shortened(name)} was left out, since no value of it is allowed")
        for name in [name for name in required if name not in properties]:
            self._undeclared(out, properties, name, path, inside)
        kept = [name for name in required if name in properties]
        if "properties" in out or properties:
            out["properties"] = properties
        if "required" in out and kept != out["required"]:
            out["required"] = kept
        if hidden:
            self._hide(out, {name: given[name] for name in hidden}, path)

    def _required(self, out: Json, path: str) -> list[str]:
        if "required" not in out:
            return []
        given = out["required"]
        names = list(dict.fromkeys(n for n in given if isinstance(n, str))) if isinstance(given, list) else []
        if names != given:
            self._changed(path, "required was put right: it lists each name once")
            out["required"] = names
        return names

    def _undeclared(self, out: Json, properties: Json, name: str, path: str, inside: frozenset[str]) -> None:
        """Declare a required property, with the schema of `additionalProperties`, which changes no meaning."""
        others = out.get("additionalProperties", True)
        if others is False or name in RESERVED:
            self._changed(path, f"{shortened(name)} is not required any longer, since it is not declared")
            return
        self._changed(path, f"the required property {shortened(name)} was declared")
        properties[name] = {} if others is True else self._schema(others, stepped(path, "additionalProperties"), inside)

    def _hide(self, out: Json, hidden: Json, path: str) -> None:
        """A property with a reserved name stays possible as an additional property that the description mentions."""
        note = told("also takes the properties", hidden)
        if note is not None:
            out["description"] = noted(out.get("description"), note)
        if out.get("additionalProperties", True) is not True:
            del out["additionalProperties"]
        self._changed(path, f"properties with reserved names were {_where(note)}: {', '.join(map(repr, hidden))}")


def _where(note: str | None) -> str:
    return "moved into the description" if note is not None else "left out"


def _levels(schema: Json) -> int:
    """Number of objects and lists in it, roughly the number of levels that a copy costs."""
    count, waiting = 0, [schema]
    while waiting:
        value: Any = waiting.pop()
        if isinstance(value, dict | list):
            count += 1
            waiting += value.values() if isinstance(value, dict) else value
    return count
