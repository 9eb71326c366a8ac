"""Malformed input: strategies that more than one of the tests in tests/fuzz draw from; their number in `cases`."""

import copy

from hypothesis import settings, strategies as st

NUMBERS = st.integers() | st.floats() | st.sampled_from([-1, 0, 1, 2**31, 2**63, 2**64, 1e-320, 1e308])
ODD = ["", " ", "nan", "null", "..", "/", "~", "\0", "a" * 300, "é", "-1", "\ud800"]
WORDS = st.text(max_size=12) | st.sampled_from(ODD)
SCALARS = st.none() | st.booleans() | NUMBERS | WORDS
JUNK = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3), max_leaves=4
)


def cases(number):
    """So many cases of a test in `make test`, and in `make fuzz` as many times more as its profile says."""
    return settings(max_examples=max(1, number * settings().max_examples // 100))


def accepted(call, errors, *named):
    """What a call returns; None where it raises one of these errors, which says why and has one of the names."""
    try:
        return call()
    except errors as error:
        assert len(str(error)) > 15 and (not named or any(name in str(error) for name in named)), error


def paths_of(tree, above=()):
    """Where a nested structure has something: keys and positions from its root."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield (*above, key)
        yield from paths_of(value, (*above, key))


@st.composite
def mutated(draw, tree, junk=JUNK):
    """A nested structure with one or two changes, and their paths: replaced, taken out, added, doubled or renamed."""
    tree, changed = copy.deepcopy(tree), []
    for _ in range(draw(st.integers(1, 2))):
        path = draw(st.sampled_from(sorted(paths_of(tree), key=repr)))
        place = tree
        for key in path[:-1]:
            place = place[key]
        change = draw(st.sampled_from(["replace", "replace", "remove", "add", "copy"]))
        if change == "replace":
            place[path[-1]] = draw(junk)
        elif change == "remove":
            del place[path[-1]]
        else:
            value = draw(junk) if change == "add" else copy.deepcopy(place[path[-1]])
            if isinstance(place, dict):
                path = (*path[:-1], draw(WORDS))
                place[path[-1]] = value
            else:
                place.append(value)
        changed.append(path)
        if not tree:
            break
    return tree, changed


@st.composite
def damaged(draw, content):
    """Bytes of which some are changed, taken out, put in, doubled or cut off; at times other bytes altogether."""
    content = bytearray(content)
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, max(len(content) - 1, 0)))
        end = start + draw(st.sampled_from([1, 1, 1, 2, 4, 16, 1000]))
        change = draw(st.sampled_from(["flip", "flip", "remove", "insert", "double", "cut", "other"]))
        if change == "flip" and content:
            content[start] ^= 1 << draw(st.integers(0, 7))
        elif change == "remove":
            del content[start:end]
        elif change == "insert":
            content[start:start] = draw(st.binary(min_size=1, max_size=8))
        elif change == "double":
            content[start:start] = content[start:end]
        elif change == "cut":
            del content[start:]
        elif change == "other":
            content[:] = draw(st.binary(max_size=64))
    return bytes(content)
