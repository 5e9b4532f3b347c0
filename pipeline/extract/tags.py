"""The elements that the scan tells apart, and what each does to the text around it.

Ids index the arrays here and stand in `Blocks.tag`; they are compiled into the njit kernels.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pipeline.extract.class_words import CLASS_CATEGORIES

#: Flags of a tag
BLOCK = 1 << 0  #: its start and its end end a block of text
VOID = 1 << 1  #: it has no content
RAW = 1 << 2  #: what stands up to its own end tag is no markup, and no text of the page
SUBTREE = 1 << 3  #: nothing in it is text of the page
CLOSES_P = 1 << 4
HEADING = 1 << 5
BOLD = 1 << 6
PRE = 1 << 7  #: white space counts in it
FENCE = 1 << 8  #: end tags do not reach beyond it
APART = 1 << 9  #: inline, but what stands on its two sides is not one word
LIST = 1 << 10
ITEM = 1 << 11
TERM = 1 << 12  #: dt, dd
ALONE = 1 << 13  #: its end tag removes this element only, whatever else is open

_BLOCKS = """
html head body title address article aside blockquote center dd details dialog dir div dl dt fieldset figcaption figure
footer form frameset h1 h2 h3 h4 h5 h6 header hgroup hr legend li listing main marquee menu nav ol optgroup option p
plaintext pre search section summary table caption colgroup tbody td tfoot th thead tr ul xmp button label
"""
_INLINE = (
    "a b strong i em u s span font small big code tt kbd samp var sub sup abbr cite q time ruby rt rp bdi bdo ins del"
)
_VOIDS = "br img image hr input wbr area base basefont bgsound col embed frame keygen link meta param source track"
_RAWS = "script style noscript iframe textarea noframes noembed title"
_SUBTREES = "template svg object canvas select datalist math video audio applet"

#: Index = id. "" stands for every name that is not here, "-" for every one with a hyphen: custom elements.
NAMES = ("", "-", *dict.fromkeys(f"{_BLOCKS} {_INLINE} {_VOIDS} {_RAWS} {_SUBTREES}".split()))
IDS = {name: i for i, name in enumerate(NAMES)}

UNKNOWN, CUSTOM = 0, 1
A, BR, IMG, IMAGE = IDS["a"], IDS["br"], IDS["img"], IDS["image"]
P, LI, TABLE, TR, TD, TH = IDS["p"], IDS["li"], IDS["table"], IDS["tr"], IDS["td"], IDS["th"]
DL, OL, HTML, HEAD, BODY, TITLE = IDS["dl"], IDS["ol"], IDS["html"], IDS["head"], IDS["body"], IDS["title"]
SCRIPT, STYLE, ARTICLE, H1 = IDS["script"], IDS["style"], IDS["article"], IDS["h1"]


def _flags() -> npt.NDArray[np.int32]:
    flags = np.zeros(len(NAMES), np.int32)

    def put(flag: int, names: str) -> None:
        flags[[IDS[name] for name in names.split()]] |= flag

    put(BLOCK | CLOSES_P, _BLOCKS)
    put(VOID, _VOIDS)
    put(RAW, _RAWS)
    put(SUBTREE, _SUBTREES)
    put(HEADING, "h1 h2 h3 h4 h5 h6")
    put(BOLD, "b strong")
    put(PRE, "pre listing xmp plaintext")
    put(FENCE, "table caption td th")
    put(APART, "img image input embed iframe textarea svg object canvas select datalist math video audio applet")
    put(LIST, "ul ol menu dir")
    put(ITEM, "li")
    put(TERM, "dd dt")
    put(ALONE, f"{_INLINE} form")
    put(BLOCK, "-")
    flags[[IDS[name] for name in ("button", "label", "title", "option", "optgroup")]] &= ~CLOSES_P
    flags[UNKNOWN] |= ALONE
    return flags


def _marked(*names: str) -> npt.NDArray[np.uint8]:
    return np.isin(np.array(NAMES), names).astype(np.uint8)


FLAGS = _flags()
HEADINGS = _marked("h1", "h2", "h3", "h4", "h5", "h6")
#: 1 cell, 2 row, 3 row group, 0 no part of a table: a part ends the open ones of its own level and below
TABLE_LEVEL = _marked("td", "th") + 2 * _marked("tr") + 3 * _marked("tbody", "thead", "tfoot")

_TAG_CATEGORIES = (
    "article main nav aside header footer section form table,td,th ul,ol,menu,dir figure blockquote "
    "pre,listing,xmp,plaintext button,label dl p details"
)
N_CLASS_CATEGORIES = len(CLASS_CATEGORIES)
N_TAG_CATEGORIES = len(_TAG_CATEGORIES.split())
#: Columns of `Blocks.categories`
CATEGORIES = (*CLASS_CATEGORIES, *(names.split(",")[0] for names in _TAG_CATEGORIES.split()), "hidden")
HIDDEN_CATEGORY = len(CATEGORIES) - 1
COMMENT_CATEGORY, TITLE_CATEGORY = CLASS_CATEGORIES.index("comments"), CLASS_CATEGORIES.index("titles")
CATEGORY_BYTES = 40  #: room for the columns, whole words of eight bytes
NEVER = 99  #: the distance to an element that is not there


def _tag_category() -> npt.NDArray[np.int8]:
    columns = np.full(len(NAMES), -1, np.int8)
    for i, names in enumerate(_TAG_CATEGORIES.split()):
        columns[[IDS[name] for name in names.split(",")]] = N_CLASS_CATEGORIES + i
    return columns


#: The column of `categories` that a tag sets to 0, or -1
TAG_CATEGORY = _tag_category()


def _by_name() -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int16]]:
    keys, ids = np.zeros(512, np.uint64), np.zeros(512, np.int16)
    for name, i in IDS.items():
        if i > CUSTOM:
            key = packed(name)
            slot = (key * NAME_FACTOR >> 55) & 511
            while keys[slot]:
                slot = (slot + 1) & 511
            keys[slot], ids[slot] = key, i
    return keys, ids


def packed(name: str) -> int:
    """A name's first seven bytes and its length in one number: what the kernels compare."""
    return int.from_bytes(name.encode()[:7].ljust(7, b"\0"), "little") | min(len(name), 255) << 56


NAME_FACTOR = 0x9E3779B97F4A7C15
#: Open-addressing table from `packed` names to ids, 512 slots, the first at the top nine bits of key * NAME_FACTOR
NAME_KEYS, NAME_IDS = _by_name()
