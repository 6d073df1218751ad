"""A tool's schema, level by level -> the same schema in Moonshot's flavour, with the changes."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from moonshim.engine.request.schema.definitions import Definitions
from moonshim.engine.request.schema.keywords import ELSEWHERE, append_notes, convert_keywords, render_note
from moonshim.engine.request.schema.merge import NOTES, Json, SchemaMerger, Unsatisfiable, is_number, type_names
from moonshim.engine.request.schema.plain import RESERVED
from moonshim.engine.request.schema.values import KEYWORDS_OF, can_keep_enum, kind_of, mend_ranges, split_enum
from moonshim.engine.request.schema.weight import MAX_SCHEMA_WEIGHT, child_path, own_weight, weight
from moonshim.engine.wire.json_fields import shorten_repr
from moonshim.errors import CannotExpress

__all__ = ["MAX_BRANCHES", "SchemaRewriter"]

MAX_BRANCHES: Final = 500
_MAX_NESTING: Final = 64
_MAX_COPIES: Final = 2000
"""Maximum number of duplicated levels; above that a constraint is dropped rather than repeated."""


class SchemaRewriter:
    """Rewrites one schema; `changes` lists each change with its path.

    The new schema accepts every value that the given one accepts. Work is bounded by the size of the schema and a
    fixed number of copies, whose total size is limited too.
    """

    def __init__(self, root: Json, size: int, heavy: int, whose: str) -> None:
        """`size` is the number of objects and lists in the schema, `heavy` its weight."""
        self._whose = whose
        self._definitions = Definitions(root)
        self._visits = 0
        self._enough = size + _MAX_COPIES
        self._written = 0
        self._room = heavy + MAX_SCHEMA_WEIGHT
        self._nested = 0
        self.changes: list[str] = []

    def rewrite(self, root: Json) -> Json:
        """The root with all definitions that it needs."""
        try:
            out = self._rewrite(root, "", frozenset())
        except Unsatisfiable as nothing:
            raise self._cannot(nothing.path or "", "it allows no value") from None
        definitions: Json = {}
        while waiting := self._definitions.next_waiting():
            name, target, place = waiting
            try:
                definitions[name] = self._rewrite(target, place, frozenset())
            except Unsatisfiable as nothing:
                raise self._cannot(nothing.path or place, "it allows no value") from None
        self._add_root_keywords(root, out, definitions)
        return out

    def _add_root_keywords(self, root: Json, out: Json, definitions: Json) -> None:
        if definitions:
            out["$defs"] = definitions
        if isinstance(root.get("$id"), str):
            out["$id"] = root["$id"]
        elif "$id" in root:
            self._report("", "$id was removed, because it is not a string")
        if "$defs" in root and not isinstance(root["$defs"], dict):
            self._report("", "$defs was removed, because it is not an object")
        if "definitions" in root:
            self._report("", "definitions became $defs")
        for name in self._definitions.unused():
            self._report(f"$defs.{name}", "was removed, because nothing refers to it")

    def _report(self, path: str, what: str) -> None:
        self.changes.append(f"At path '{path or 'root'}': {what}")

    def _cannot(self, path: str, why: str) -> CannotExpress:
        return CannotExpress(f"{self._whose}: At path '{path or 'root'}': {why}", field="parameters")

    # --- one level ------------------------------------------------------------------------------------------------

    def _rewrite(self, raw: Any, path: str, inside: frozenset[str]) -> Json:
        """`inside`: the references inlined on the way here; none is inlined inside itself."""
        if self._nested >= _MAX_NESTING:
            raise self._cannot(path, f"it is nested more than {_MAX_NESTING} schemas deep")
        self._nested += 1
        try:
            keywords, inside = self._merge_level(raw, path, inside)
            if "$ref" in keywords:
                return self._rewrite_reference(keywords, path)
            if "anyOf" in keywords:
                return self._rewrite_alternatives(keywords, path, inside)
            return self._rewrite_typed(keywords, path, inside)
        except Unsatisfiable as nothing:
            nothing.path = nothing.path or path
            raise
        finally:
            self._nested -= 1

    def _merge_level(self, raw: Any, path: str, inside: frozenset[str]) -> tuple[Json, frozenset[str]]:
        """Everything that applies on this level as one schema: `allOf`, and siblings of a reference."""
        merger = SchemaMerger()
        references: dict[str, None] = {}
        waiting: deque[Any] = deque([raw])
        entered = {*inside}
        while waiting:
            part = self._convert_part(waiting.popleft(), path)
            if "allOf" in part:
                waiting.extendleft(reversed(self._all_of(part.pop("allOf"), path)))
            if "$ref" in part:
                references[self._check_reference(part.pop("$ref"), path)] = None
            for keyword in merger.add(part):
                self._report(path, f"one {keyword} was removed, because two cannot be combined")
            if not waiting and references:
                written = self._next_to_inline(merger, references, path, entered)
                if written is None:
                    break
                entered.add(written)
                waiting.append(self._definitions.target(written))
        keywords = merger.result()
        if references:
            keywords = {
                "$ref": next(iter(references)),
                **{keyword: keywords[keyword] for keyword in NOTES if keyword in keywords},
            }
        return keywords, inside if len(entered) == len(inside) else frozenset(entered)

    def _all_of(self, branches: Any, path: str) -> list[Any]:
        if branches is None:
            self._report(path, "allOf was removed, because it is null")
            return []
        if not isinstance(branches, list):
            raise self._cannot(path, "allOf must be an array")
        self._report(path, "allOf was merged into one schema")
        return branches

    def _convert_part(self, raw: Any, path: str) -> Json:
        self._visits += 1
        self._written += own_weight(raw) if isinstance(raw, dict) else 1
        if self._visits > 2 * self._enough or self._written > 2 * self._room:
            raise self._cannot(path, "it becomes too large when its references are inlined")
        if raw is False:
            raise Unsatisfiable
        if raw is True:
            self._report(path, "true became an empty schema")
            return {}
        if not isinstance(raw, dict):
            raise self._cannot(path, "a schema must be an object")
        changes = [
            f"{keyword} was removed, because it is allowed only at the root" for keyword in raw if keyword in ELSEWHERE
        ]
        if not path:
            changes.clear()
        keywords = convert_keywords(raw, changes)
        if "type" in keywords:
            self._check_types(keywords, path)
        for change in changes:
            self._report(path, change)
        return keywords

    def _check_reference(self, reference: Any, path: str) -> str:
        if not isinstance(reference, str):
            raise self._cannot(path, "$ref must be a string")
        if not self._definitions.has(reference):
            raise self._cannot(path, f"$ref {shorten_repr(reference)} does not point to a schema in this document")
        return reference

    def _next_to_inline(
        self, merger: SchemaMerger, references: dict[str, None], path: str, entered: set[str]
    ) -> str | None:
        """Take a reference whose target must be merged with its siblings off the list, if there is one."""
        beside = others = merger.keywords() - {*NOTES}
        if len(references) == 1:
            target = self._definitions.target(next(iter(references)))
            if isinstance(target, dict):
                others = {
                    keyword
                    for keyword in beside
                    if keyword not in target or not merger.has_value(keyword, target[keyword])
                }
            if not others:
                if beside:
                    self._report(path, "the keywords beside $ref were removed, because the reference implies them")
                return None
        chosen = next((each for each in references if each not in entered and each != "#"), None)
        if chosen is None or self._visits > self._enough or self._written > self._room:
            self._report(path, f"{', '.join(sorted(others)) or 'a reference'} beside $ref was removed")
            return None
        del references[chosen]
        self._report(path, f"{chosen} was inlined, because it has sibling keywords")
        return chosen

    def _rewrite_reference(self, keywords: Json, path: str) -> Json:
        reference = keywords.pop("$ref")
        pointer = self._definitions.name_of(reference)
        if pointer != reference:
            self._report(path, f"$ref {reference} became {pointer}")
        return {"$ref": pointer, **self._without_default(keywords, path, "$ref")}

    def _without_default(self, keywords: Json, path: str, beside: str) -> Json:
        """The annotations of a level that cannot have a default: it moves into the description."""
        notes: Json = {keyword: keywords[keyword] for keyword in ("title", "description") if keyword in keywords}
        if "default" in keywords:
            note = render_note("default", keywords["default"])
            if note is not None:
                notes["description"] = append_notes(notes.get("description"), note)
            self._report(path, f"default is not allowed beside {beside} and was {_note_outcome(note)}")
        return notes

    # --- alternatives ---------------------------------------------------------------------------------------------

    def _rewrite_alternatives(self, keywords: Json, path: str, inside: frozenset[str]) -> Json:
        branches = keywords["anyOf"]
        if not isinstance(branches, list) or not all(isinstance(branch, dict | bool) for branch in branches):
            raise self._cannot(child_path(path, "anyOf"), "it must be an array of schemas")
        own = {keyword: value for keyword, value in keywords.items() if keyword not in NOTES and keyword != "anyOf"}
        if own:
            rest = self._fold_alternatives(keywords, own, branches, path)
            if rest is not None:
                return self._rewrite_typed(rest, path, inside)
            branches = [{"allOf": [own, branch]} for branch in branches]
            # Merging is reported once, here, and not for each branch.
            self._report(path, f"{', '.join(sorted(own))} was moved from beside anyOf into its schemas")
        out: list[Json] = []
        for branch in branches:
            before = len(self.changes)
            try:
                out.append(self._rewrite(branch, child_path(path, "anyOf"), inside))
            except Unsatisfiable:
                del self.changes[before:]
                self._report(path, "a schema of anyOf that allows no value was removed")
        if not out:
            raise Unsatisfiable
        return {"anyOf": self._split_groups(out, path), **self._without_default(keywords, path, "anyOf")}

    def _fold_alternatives(self, keywords: Json, own: Json, branches: list[Any], path: str) -> Json | None:
        """The schema without its alternatives, if they only repeat or only require properties; None if they must
        stay."""
        rest = {keyword: value for keyword, value in keywords.items() if keyword != "anyOf"}
        if any(branch is True or branch == {} for branch in branches):
            self._report(path, "anyOf was removed, because one of its schemas allows everything")
            return rest
        requires = all(isinstance(b, dict) and b.keys() <= {"required", "title", "description"} for b in branches)
        visits = self._visits + (1 + _count_levels(own)) * len(branches)
        if not requires and visits <= self._enough and self._written + weight(own) * len(branches) <= self._room:
            return None
        note = render_note("anyOf", branches)
        if note is not None:
            rest["description"] = append_notes(rest.get("description"), note)
        self._report(path, f"anyOf was {_note_outcome(note)}, so that its sibling keywords need not be repeated")
        return rest

    def _split_groups(self, branches: list[Json], path: str) -> list[Json]:
        while len(branches) > MAX_BRANCHES:
            starts = range(0, len(branches), MAX_BRANCHES)
            branches = [{"anyOf": branches[at : at + MAX_BRANCHES]} for at in starts]
            self._report(path, f"anyOf was split into groups of {MAX_BRANCHES}")
        return branches

    # --- types ----------------------------------------------------------------------------------------------------

    def _rewrite_typed(self, keywords: Json, path: str, inside: frozenset[str]) -> Json:
        types = self._unique_types(keywords, path)
        if "enum" in keywords:
            return self._rewrite_enum(keywords, types, path, inside)
        if types is None:
            if not keywords.get("required") and (path or not keywords):
                return self._rewrite_children(keywords, path, inside)
            self._report(path, "type object was added")
            types = ["object"]
            keywords = {"type": "object", **keywords}
        if len(types) == 1:
            return self._rewrite_type(keywords, types[0], path, inside)
        used = {
            name: {keyword: keywords[keyword] for keyword in keywords if keyword in KEYWORDS_OF[name]} for name in types
        }
        if not any(used.values()):
            return {"type": types, **self._keep_notes(keywords, path)}
        self._report(path, "the types were split over anyOf, each with its own keywords")
        branches = self._rewrite_branches([{"type": name, **own} for name, own in used.items() if own], path, inside)
        if bare := [name for name, own in used.items() if not own]:
            branches.append({"type": bare[0] if len(bare) == 1 else bare})
        if not branches:
            raise Unsatisfiable
        return {"anyOf": branches, **self._without_default(keywords, path, "anyOf")}

    def _unique_types(self, keywords: Json, path: str) -> list[str] | None:
        if "type" not in keywords:
            return None
        once = list(dict.fromkeys(type_names(keywords["type"])))
        if isinstance(keywords["type"], list) and len(once) < len(keywords["type"]):
            self._report(path, "a repeated type was removed")
            keywords["type"] = once if len(once) > 1 else once[0]
        return once

    def _check_types(self, keywords: Json, path: str) -> None:
        if keywords["type"] == "any":
            del keywords["type"]
            self._report(path, "type any was removed, because it allows everything")
            return
        names = type_names(keywords["type"])
        for name in names:
            if not isinstance(name, str) or name not in KEYWORDS_OF:
                raise self._cannot(path, f"invalid type {shorten_repr(name)}")
        if not names:
            raise self._cannot(path, "type array cannot be empty")

    def _keep_notes(self, keywords: Json, path: str) -> Json:
        for keyword in [keyword for keyword in keywords if keyword not in NOTES and keyword != "type"]:
            self._report(path, f"{keyword} was removed, because it does not apply to these types")
        return self._without_default(keywords, path, "several types")

    def _rewrite_enum(self, keywords: Json, types: list[str] | None, path: str, inside: frozenset[str]) -> Json:
        values = keywords["enum"]
        if not isinstance(values, list):
            raise self._cannot(path, "enum must be an array")
        if any(kind_of(value) in ("integer", "number") and not is_number(value) for value in values):
            raise self._cannot(path, "enum contains a number that is too large or not finite")
        if can_keep_enum(keywords, types) and values:
            return self._rewrite_type(keywords, types[0], path, inside) if types and len(types) == 1 else dict(keywords)
        self._report(path, "enum was split by the types of its values" if values else "enum is empty")
        typed: list[Json] = []
        for branch in split_enum(values, types):
            own = {
                keyword: keywords[keyword]
                for keyword in keywords
                if keyword in KEYWORDS_OF[branch["type"]] and keyword != "enum"
            }
            typed.append({**own, **branch})
        branches = self._rewrite_branches(typed, path, inside)
        if not branches:
            raise Unsatisfiable
        notes: Json = {keyword: keywords[keyword] for keyword in NOTES if keyword in keywords}
        if any(branch["type"] in ("object", "array") for branch in branches):
            note = render_note("enum", values)
            self._report(path, f"enum values that are objects or arrays were {_note_outcome(note)}")
            if note is not None:
                notes["description"] = append_notes(notes.get("description"), note)
        if len(branches) == 1:
            return {**branches[0], **notes}
        return {"anyOf": self._split_groups(branches, path), **self._without_default(notes, path, "anyOf")}

    def _rewrite_branches(self, branches: list[Json], path: str, inside: frozenset[str]) -> list[Json]:
        """Each branch with one type; unsatisfiable ones are dropped."""
        out: list[Json] = []
        for branch in branches:
            try:
                out.append(self._rewrite_type(branch, branch["type"], path, inside))
            except Unsatisfiable:
                self._report(path, f"type {branch['type']} was removed, because none of its values is allowed")
        return out

    def _rewrite_type(self, keywords: Json, name: str, path: str, inside: frozenset[str]) -> Json:
        for keyword in [keyword for keyword in keywords if keyword not in KEYWORDS_OF[name] | {*NOTES, "type"}]:
            self._report(path, f"{keyword} was removed, because it does not apply to type {name}")
            keywords = {key: value for key, value in keywords.items() if key != keyword}
        out = self._rewrite_children(keywords, path, inside)
        changes: list[str] = []
        mend_ranges(out, name, changes)
        for change in changes:
            self._report(path, change)
        return out

    # --- what is below ----------------------------------------------------------------------------------------------

    def _rewrite_children(self, keywords: Json, path: str, inside: frozenset[str]) -> Json:
        out = dict(keywords)
        if "pattern" in out and not isinstance(out["pattern"], str):
            del out["pattern"]
            self._report(path, "pattern was removed, because it is not a string")
        if "items" in out:
            self._rewrite_items(out, path, inside)
        if "properties" in out or "required" in out:
            self._rewrite_properties(out, path, inside)
        others = out.get("additionalProperties")
        if others is not None and not isinstance(others, bool):
            try:
                out["additionalProperties"] = self._rewrite(others, child_path(path, "additionalProperties"), inside)
            except Unsatisfiable:
                out["additionalProperties"] = False
                self._report(path, "additionalProperties became false, because it allows no value")
        elif "additionalProperties" in out and others is None:
            raise self._cannot(path, "additionalProperties must be a boolean or an object")
        return out

    def _rewrite_items(self, out: Json, path: str, inside: frozenset[str]) -> None:
        try:
            items = out.pop("items")
            if items is True or items == {}:
                self._report(path, "items was removed, because it allows everything")
                return
            below = self._rewrite(items, child_path(path, "items"), inside)
            if below:
                out["items"] = below
            else:
                self._report(path, "items was removed, because the rest of it allows everything")
        except Unsatisfiable:
            self._report(path, "items that allow no value became maxItems 0")
            out["maxItems"] = 0

    def _rewrite_properties(self, out: Json, path: str, inside: frozenset[str]) -> None:
        declared, required = out.get("properties", {}), self._unique_required(out, path)
        if not isinstance(declared, dict):
            raise self._cannot(child_path(path, "properties"), "it must be an object")
        properties: Json = {}
        hidden: list[str] = []
        needed = {*required}
        for name, below in declared.items():
            if name in RESERVED:
                hidden.append(name)
                continue
            before = len(self.changes)
            try:
                properties[name] = self._rewrite(below, child_path(path, "properties", name), inside)
            except Unsatisfiable:
                if name in needed:
                    raise
                del self.changes[before:]
                self._report(path, f"property {shorten_repr(name)} was removed, because no value of it is allowed")
        for name in [name for name in required if name not in properties]:
            self._declare_required(out, properties, name, path, inside)
        declared_required = [name for name in required if name in properties]
        if "properties" in out or properties:
            out["properties"] = properties
        if "required" in out and declared_required != out["required"]:
            out["required"] = declared_required
        if hidden:
            self._hide_reserved(out, {name: declared[name] for name in hidden}, path)

    def _unique_required(self, out: Json, path: str) -> list[str]:
        if "required" not in out:
            return []
        required = out["required"]
        names = list(dict.fromkeys(n for n in required if isinstance(n, str))) if isinstance(required, list) else []
        if names != required:
            self._report(path, "required was corrected to list each name once")
            out["required"] = names
        return names

    def _declare_required(self, out: Json, properties: Json, name: str, path: str, inside: frozenset[str]) -> None:
        """Declare a required property, with the schema of `additionalProperties`, which changes no meaning."""
        others = out.get("additionalProperties", True)
        if others is False or name in RESERVED:
            self._report(path, f"{shorten_repr(name)} is no longer required, because it is not declared")
            return
        self._report(path, f"the required property {shorten_repr(name)} was declared")
        properties[name] = (
            {} if others is True else self._rewrite(others, child_path(path, "additionalProperties"), inside)
        )

    def _hide_reserved(self, out: Json, hidden: Json, path: str) -> None:
        """A property with a reserved name stays possible as an additional property that the description mentions."""
        note = render_note("also takes the properties", hidden)
        if note is not None:
            out["description"] = append_notes(out.get("description"), note)
        if out.get("additionalProperties", True) is not True:
            del out["additionalProperties"]
        self._report(path, f"properties with reserved names were {_note_outcome(note)}: {', '.join(map(repr, hidden))}")


def _note_outcome(note: str | None) -> str:
    return "moved into the description" if note is not None else "removed"


def _count_levels(schema: Json) -> int:
    """Number of objects and lists in it, roughly the number of levels that a copy costs."""
    count, waiting = 0, [schema]
    while waiting:
        value: Any = waiting.pop()
        if isinstance(value, dict | list):
            count += 1
            waiting += value.values() if isinstance(value, dict) else value
    return count
