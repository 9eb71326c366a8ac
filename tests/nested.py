"""Changes of nested dictionaries and lists, such as studies and specifications."""

import copy


def changed(content, path, value=None):
    """A copy with the key at the path set to a value, or taken out where there is none."""
    result = copy.deepcopy(content)
    *way, last = path
    place = result
    for key in way:
        place = place[key] if isinstance(place, list) else place.setdefault(key, {})
    if value is None:
        del place[last]
    else:
        place[last] = value
    return result
