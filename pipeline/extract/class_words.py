"""Twenty kinds of page parts, by the words that authors name them with in class, id, role and itemprop values.

The lists are the study's, by hand, in the order of the columns of `Blocks.categories`; a word may be in several. They
reach the njit kernels as a table.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pipeline.text import hash_table

_LISTS = {
    "content": "content contents body text maincontent articlebody bodytext copy prose richtext rte wysiwyg markdown",
    "stories": "article story entry post posts blog news hentry blogpost articles stories",
    "mains": "main primary page",
    "comments": "comment comments reply replies disqus discussion responses commentlist respond livefyre",
    "shares": (
        "share social sharing facebook twitter tweet follow like likes addthis sharedaddy whatsapp pinterest linkedin "
        "instagram buttons socials"
    ),
    "related": (
        "related recommended recommend recommendations more similar popular trending latest also recent suggestions "
        "suggested next prev previous mostread read outbrain taboola teaser teasers"
    ),
    "sidebars": "sidebar side aside rail widget widgets secondary complementary right left column",
    "menus": (
        "nav navigation menu navbar breadcrumb breadcrumbs tabs tab toc pagination pager topbar dropdown links skip "
        "submenu megamenu sitemap"
    ),
    "heads": "header head masthead banner top logo branding hero",
    "foots": "footer foot bottom copyright colophon legal disclaimer contentinfo",
    "notices": ("cookie cookies consent gdpr modal popup overlay privacy notice alert lightbox dialog toast onetrust"),
    "adverts": (
        "ad ads advert advertisement sponsor sponsored promo promotion newsletter subscribe subscription signup cta "
        "donate paywall offer promoted adv dfp marketing"
    ),
    "bylines": (
        "author byline meta date time timestamp published tags tag category categories bio credit source info avatar "
        "user profile"
    ),
    "products": "product price description spec specs specification details features sku variant reviews review rating",
    "forums": "forum thread topic message msg postbody question answer answers posttext bbs",
    "titles": "title headline heading subtitle deck dek summary lead intro standfirst excerpt lede subhead",
    "pictures": (
        "caption figure image img photo gallery video player slider carousel media thumbnail swiper slide slick"
    ),
    "forms": (
        "form login search input register account cart checkout basket field contact wishlist filter filters sort"
    ),
    "lists": "list item items card cards grid listing results feed tile archive col row",
    "hiding": "hidden hide sr visually invisible collapse collapsed noprint offscreen none",
}
CLASS_CATEGORIES = tuple(_LISTS)


def token_hash(word: str) -> int:
    """FNV-1a, 32 bits, of the UTF-8 bytes: what the scan stores of every token."""
    value = 0x811C9DC5
    for byte in word.encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


def _table() -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
    masks: dict[int, int] = {}
    for column, words in enumerate(_LISTS.values()):
        for word in words.split():
            key = token_hash(word)
            masks[key] = masks.get(key, 0) | 1 << column
    keys, index = hash_table(np.array(list(masks), np.uint64))
    return keys, np.where(index >= 0, np.array(list(masks.values()), np.int64)[index], 0)


#: For text_kernels.lookup, token hashes; at a hash's slot the bits of the categories that list the word
WORD_KEYS, WORD_CATEGORIES = _table()
