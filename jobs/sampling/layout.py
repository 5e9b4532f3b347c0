"""The HTML around an article as sites have it: navigation, cookie banner, teasers, comments, footer, scripts."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from random import Random

from jobs.sampling.writer import UNSPACED, Article, words


@dataclass(frozen=True, slots=True)
class Site:
    host: str
    name: str
    lang: str
    style: str  #: news | blog | wiki | plain


SITES: tuple[Site, ...] = (
    Site("www.harrowby-gazette.example", "Harrowby Gazette", "en", "news"),
    Site("www.northgate-times.example", "Northgate Times", "en", "news"),
    Site("slowkitchen.example", "The Slow Kitchen", "en", "blog"),
    Site("fieldnotes.example", "Field Notes", "en", "blog"),
    Site("heritage.wexley.example", "Wexley Heritage", "en", "wiki"),
    Site("www.tarn-and-fell.example", "Tarn and Fell", "en", "plain"),
    Site("weekend-reader.example", "Weekend Reader", "en", "news"),
    Site("www.lindenauer-bote.example", "Lindenauer Bote", "de", "news"),
    Site("heimatblog.example", "Heimatblog", "de", "blog"),
    Site("www.courrier-montrevel.example", "Le Courrier de Montrevel", "fr", "news"),
    Site("carnet.fontclaire.example", "Carnet de Fontclaire", "fr", "blog"),
    Site("www.diario-valdeoro.example", "Diario de Valdeoro", "es", "news"),
    Site("gazeta-lipnica.example", "Gazeta Lipnicka", "pl", "news"),
    Site("zarechye.example", "Заречье", "ru", "blog"),
    Site("www.liuhe.example", "柳河在线", "zh", "news"),
    Site("kawaramachi.example", "川原町だより", "ja", "blog"),
)

_SCRIPT = (
    "<script>window.dataLayer=window.dataLayer||[];function track(e){dataLayer.push({event:e,at:Date.now()})}</script>"
)
_STYLE = "<style>body{font:16px serif;margin:0}.menu li{display:inline}.ad{background:#eee}</style>"


def sites(lang: str) -> tuple[Site, ...]:
    return tuple(site for site in SITES if site.lang == lang)


def page(article: Article, site: Site, rng: Random, *, charset: str | None, notes: tuple[str, ...] = ()) -> str:
    """A whole page; `charset` goes into a meta element, `notes` are further paragraphs after the article's own."""
    return document(site, article.title, _body(article, site, rng, notes), rng, charset=charset)


def document(site: Site, title: str, main: str, rng: Random, *, charset: str | None) -> str:
    """`main` inside the boilerplate of `site`."""
    texts = words(site.lang)["site"]
    menu = "".join(f'<li><a href="/{i}/">{escape(item)}</a></li>' for i, item in enumerate(texts["nav"]))
    teasers = "".join(
        f'<li><a href="/p/{rng.randrange(10**6)}">{escape(teaser)}</a></li>' for teaser in _teasers(site, rng)
    )
    consent = f"<p>{escape(texts['cookie'])}</p><button>{escape(texts['accept'])}</button>"
    cookie = f'<div id="cookie-banner" role="dialog">{consent}</div>'
    aside = f'<aside class="related"><h4>{escape(texts["related"])}</h4><ul>{teasers}</ul></aside>'
    share = "".join(f'<a class="share" href="#">{escape(s)}</a> ' for s in texts["share"])
    meta = f'<meta charset="{charset}">' if charset else ""
    head = f"<head>{meta}<title>{escape(title)} | {escape(site.name)}</title>{_STYLE}{_SCRIPT}</head>"
    banner = f'<header><a class="logo" href="/">{escape(site.name)}</a><nav><ul class="menu">{menu}</ul></nav></header>'
    footer = f"<footer><p>&copy; 2024 {escape(site.name)}. {escape(texts['footer'])}</p><ul>{menu}</ul></footer>"
    body = f'{banner}{cookie}{main}<div class="sharing">{share}</div>{aside}{footer}{_SCRIPT}'
    return f'<!DOCTYPE html>\n<html lang="{site.lang}">{head}<body class="{site.style}">\n{body}\n</body></html>\n'


def _body(article: Article, site: Site, rng: Random, notes: tuple[str, ...]) -> str:
    parts = [f"<h1>{escape(article.title)}</h1>"]
    if site.style in ("news", "blog"):
        author = rng.choice(words(article.lang)["slots"]["PERSON"])
        parts.append(
            f'<p class="byline"><span>{escape(author)}</span> <time>2024-03-{rng.randint(1, 28):02}</time></p>'
        )
    for i in range(len(article.paragraphs)):
        if i and article.headings:
            parts.append(f"<h2>{escape(article.headings[i - 1])}</h2>")
        parts.append(f"<p>{escape(article.text(i))}</p>")
        if i == 1 and site.style == "news":
            parts.append('<div class="ad"><a href="/ad">Advertisement</a></div>')
    parts += [f"<p>{escape(note)}</p>" for note in notes]
    inner = "\n".join(parts)
    if site.style == "plain":
        return f'<table><tr><td><div id="content">{inner}</div></td></tr></table>'
    if site.style == "wiki":
        return f'<main><div id="mw-content-text">{inner}</div></main>'
    return (
        f'<main><article class="post">{inner}</article>{_comments(article, rng) if site.style == "blog" else ""}</main>'
    )


def _comments(article: Article, rng: Random) -> str:
    """A few reader comments, made of other sentences in the language."""
    texts = words(article.lang)
    people = rng.sample(texts["slots"]["PERSON"], min(3, len(texts["slots"]["PERSON"])))
    joint = "" if article.lang in UNSPACED else " "
    items = "".join(
        f'<li class="comment"><b>{escape(p)}</b><p>{escape(joint.join(article.paragraphs[0][:1]))}</p></li>'
        for p in people[: rng.randint(0, 1)]
    )
    return (
        f'<section id="comments"><h3>{len(people)} {escape(texts["site"]["comments"])}</h3><ul>{items}</ul></section>'
    )


def _teasers(site: Site, rng: Random) -> list[str]:
    known = words(site.lang)
    titles = [title for topic in known["topics"].values() for title in topic["titles"]]
    constants = {name: rng.choice(values) for name, values in known["slots"].items() if name.isupper()}
    return [title.format(**constants) for title in rng.sample(titles, min(4, len(titles)))]
