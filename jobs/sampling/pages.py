"""One builder per kind of page in the mix: good articles and everything that a filter is there for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from html import escape
from random import Random

from jobs.sampling import layout
from jobs.sampling.layout import Site
from jobs.sampling.warc import Capture
from jobs.sampling.writer import Article, article, syndicated, words

#: What old sites still send, by language.
_CHARSETS = {
    "de": ("windows-1252", "iso-8859-1"),
    "fr": ("windows-1252", "iso-8859-15"),
    "es": ("iso-8859-1",),
    "pl": ("iso-8859-2", "windows-1250"),
    "ru": ("windows-1251", "koi8-r"),
    "zh": ("gb18030", "gbk"),
    "ja": ("shift_jis", "euc-jp"),
    "en": ("windows-1252",),
}
_CODINGS = ("", "", "", "", "", "gzip", "gzip", "gzip", "br", "deflate")


def good(lang: str, number: int, rng: Random) -> tuple[Article, Capture]:
    """An article that should be kept; some carry an e-mail address and a public IP to be masked."""
    written = article(lang, rng)
    notes: tuple[str, ...] = ()
    if lang == "en" and rng.random() < 0.1:
        name = rng.choice(words("en")["slots"]["PERSON"]).lower().replace(" ", ".")
        notes = (
            f"Questions about this page go to {name}@post.example, and the old pages can still be read on the "
            f"server at 8.8.{rng.randint(4, 8)}.{rng.randint(1, 254)} until the end of the year.",
        )
    return written, _published(written, "article", number, rng, notes)


def copy_of(original: Article, number: int, rng: Random) -> Capture:
    """The same article at another address."""
    return _published(original, "copy", number, rng)


def syndicated_copy(original: Article, number: int, rng: Random) -> Capture:
    """The same article, slightly shorter, on another site and with a line of credit."""
    source = rng.choice(layout.sites(original.lang)).name
    note = f"This article appeared first in {source} and is printed here with kind permission."
    return _published(syndicated(original, rng), "syndicated", number, rng, (note,))


def _published(written: Article, kind: str, number: int, rng: Random, notes: tuple[str, ...] = ()) -> Capture:
    site = rng.choice(layout.sites(written.lang))
    slug = "-".join(w for w in written.title.lower().replace("'", "").split() if w.isascii()) or "page"
    old = rng.random() < (0.04 if written.lang == "en" else 0.35)
    charset = rng.choice(_CHARSETS[written.lang]) if old else "utf-8"
    told_by = rng.choice(("header", "header", "both", "meta", "meta", "nobody"))
    html = layout.page(written, site, rng, charset=charset if told_by in ("meta", "both") else None, notes=notes)
    return Capture(
        kind,
        f"https://{site.host}/2024/{slug}-{number}",
        html.encode(charset, "xmlcharrefreplace"),
        charset,
        f"text/html; charset={charset}" if told_by in ("header", "both") else "text/html",
        coding=rng.choice(_CODINGS),
        chunked=rng.random() < 0.25,
    )


def _english(kind: str, number: int, rng: Random, path: str, main: str, title: str, host: str | None = None) -> Capture:
    site = rng.choice(layout.sites("en"))
    if host is not None:
        site = Site(host, title, "en", "plain")
    html = layout.document(site, title, f"<main>{main}</main>", rng, charset="utf-8")
    return Capture(kind, f"https://{site.host}/{path}-{number}", html.encode(), coding=rng.choice(_CODINGS))


def _paragraphs(*texts: str) -> str:
    return "\n".join(f"<p>{escape(text)}</p>" for text in texts)


def _sentences(rng: Random, count: int) -> list[str]:
    written = article("en", rng)
    return [s for paragraph in written.paragraphs for s in paragraph][:count]


def short(number: int, rng: Random) -> Capture:
    main = _paragraphs("Sign in to your account.", "Forgotten your password? We will send you a new one by e-mail.")
    return _english("short", number, rng, "login", main, "Sign in")


def casino(number: int, rng: Random) -> Capture:
    games = ("slots", "roulette", "blackjack", "poker", "jackpot")
    texts = [
        f"Play {rng.choice(games)} now at the best online casino and win a free bonus of {rng.randint(10, 900)} euros "
        f"today. Our casino {rng.choice(games)} pay out faster than any other casino."
        for _ in range(8)
    ]
    host = f"www.best-casino-{rng.choice(games)}-bonus.example"
    slug = "xxx-casino-bonus" if number % 2 else "online-casino-bonus"  # the first kind ends at a URL list
    return _english("casino", number, rng, slug, _paragraphs(*texts), "Casino bonus", host)


def stuffed(number: int, rng: Random) -> Capture:
    thing = rng.choice(("garden sheds", "used cars", "roof repair", "phone cases", "white shoes"))
    town = rng.choice(words("en")["slots"]["town"])
    line = f"cheap {thing} in {town} and the best {thing} near {town} for sale with free delivery of {thing}"
    return _english("stuffed", number, rng, "buy", _paragraphs(*[f"{line.capitalize()}."] * rng.randint(8, 20)), thing)


def lorem(number: int, rng: Random) -> Capture:
    main = _paragraphs(
        " ".join(_sentences(rng, 6)),
        "Lorem ipsum dolor sit amet, consectetur adipiscing elit, sed do eiusmod tempor incididunt ut labore.",
        " ".join(_sentences(rng, 4)),
    )
    return _english("lorem", number, rng, "draft", main, "Page under construction")


def script_wall(number: int, rng: Random) -> Capture:
    main = _paragraphs(
        "Please enable JavaScript in your browser to use this site.",
        "This page needs JavaScript to show its content, and your browser has JavaScript turned off.",
        "If you do not know how to turn on JavaScript, ask the person who looks after your computer for help.",
        *_sentences(rng, 2),
    )
    return _english("script_wall", number, rng, "app", main, "Enable JavaScript")


def code(number: int, rng: Random) -> Capture:
    name = rng.choice(("total", "average", "largest", "median"))
    snippet = f"function {name}(values) {{ let result = 0; for (const v of values) {{ result += v; }} return result; }}"
    main = _paragraphs(*_sentences(rng, 5), f"The whole thing is a single function: {snippet}", *_sentences(rng, 3))
    return _english("code", number, rng, "notes/code", main, f"How to write {name}")


def links(number: int, rng: Random) -> Capture:
    towns = words("en")["slots"]["town"]
    items = "".join(
        f'<li><a href="/dir/{rng.randrange(10**5)}">{rng.choice(towns)} {w} directory and listings</a></li>'
        for w in rng.sample(words("en")["slots"]["trade"] + words("en")["slots"]["food"], 18)
    )
    return _english("links", number, rng, "directory", f"<ul>{items}</ul>", "All categories")


def forum(number: int, rng: Random) -> Capture:
    people = words("en")["slots"]["PERSON"]
    replies = (
        "ok thanks",
        "no idea sorry",
        "same here",
        "did you find it",
        "try again later",
        "works for me now",
        "+1",
    )
    posts = "\n".join(
        f"<p>{rng.choice(people)}</p>\n<p>{rng.choice(replies)}</p>\n<p>{rng.randint(1, 23)}:{rng.randint(10, 59)}</p>"
        for _ in range(rng.randint(20, 40))
    )
    return _english("forum", number, rng, "forum/thread", posts, "Has anybody seen this")


def teasers(number: int, rng: Random) -> Capture:
    texts = [f"{s.rstrip('.')[:90].rsplit(' ', 1)[0]}..." for s in _sentences(rng, 14)]
    return _english("teasers", number, rng, "archive", _paragraphs(*texts), "From the archive")


def numbers(number: int, rng: Random) -> Capture:
    rows = "".join(
        f"<p>{rng.randint(1, 28):02}.{rng.randint(1, 12):02}.2023 | {rng.uniform(0, 40):.1f} | "
        f"{rng.uniform(0, 99):.2f} | "
        f"{rng.randint(900, 1100)} | {rng.uniform(0, 12):.1f} mm | {rng.randint(0, 360)}</p>\n"
        for _ in range(40)
    )
    return _english("numbers", number, rng, "weather/table", rows, "Weather readings")


def tags(number: int, rng: Random) -> Capture:
    pool = [w for name in ("food", "habitat", "stuff", "trade") for w in words("en")["slots"][name]]
    texts = [" ".join(f"# {w.replace(' ', '')}" for w in rng.sample(pool, 12)) for _ in range(8)]
    return _english("tags", number, rng, "tagged", _paragraphs(*texts), "Tags")


def mixed(number: int, rng: Random) -> Capture:
    """A page in four languages at once, so that no language is certain."""
    texts = [" ".join(article(lang, rng).paragraphs[0]) for lang in ("en", "de", "fr", "es")]
    rng.shuffle(texts)
    return _english("mixed", number, rng, "welcome", _paragraphs(*texts), "Welcome")


def not_found(number: int, rng: Random) -> Capture:
    main = _paragraphs("The page that you are looking for is not here.", "It may have moved, or the address is wrong.")
    return replace(
        _english("not_found", number, rng, "old", main, "Not found"), status=rng.choice((404, 404, 410, 500))
    )


def redirect(number: int, rng: Random) -> Capture:
    page = _english("redirect", number, rng, "go", _paragraphs("Moved."), "Moved")
    return replace(
        page, status=rng.choice((301, 302)), location=f"{page.url}/", body=b"<html><body>Moved</body></html>"
    )


def pdf(number: int, rng: Random) -> Capture:
    """A PDF that its server calls a web page."""
    page = _english("pdf", number, rng, "report.pdf?id=", "", "Report")
    body = b"%PDF-1.4\n%\xe2\xe3\xcf\xd3\n1 0 obj\n<< /Type /Catalog >>\nendobj\n" + rng.randbytes(3000) + b"\n%%EOF\n"
    return replace(page, body=body, content_type="text/html")


def image(number: int, rng: Random) -> Capture:
    page = _english("image", number, rng, "pictures/view", "", "Picture")
    return replace(page, body=b"\x89PNG\r\n\x1a\n" + rng.randbytes(2000), content_type="image/png", coding="")


def empty(number: int, rng: Random) -> Capture:
    return replace(_english("empty", number, rng, "blank", "", "Blank"), body=b"", coding="")


def revisit(number: int, rng: Random) -> Capture:
    return replace(_english("revisit", number, rng, "same", "", "Same"), body=b"", coding="", revisit=True)


def cut(number: int, rng: Random) -> Capture:
    """An article of which the crawler kept the first part only."""
    _, page = good("en", number, rng)
    return replace(page, kind="cut", cut=0.6, coding="", chunked=False)


#: Kinds that stand for themselves; articles and copies are dealt with in segment.py.
BUILDERS: dict[str, Callable[[int, Random], Capture]] = {
    builder.__name__: builder
    for builder in (
        short, casino, stuffed, lorem, script_wall, code, links, forum, teasers, numbers, tags, mixed,
        not_found, redirect, pdf, image, empty, revisit, cut,
    )
}  # fmt: skip
