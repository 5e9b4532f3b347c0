"""What a character is and which strings are a word of their own: the tables behind the word kernel.

Words follow spaCy's blank English tokenizer (MIT licence), which the reference implementation uses: its affix classes
and its list of exceptions (contractions, abbreviations, emoticons) are restated here. Punctuation sets are datatrove's
(Apache-2.0).
"""

from __future__ import annotations

import unicodedata
from functools import cache
from itertools import chain

import numpy as np
import numpy.typing as npt

#: Characters below this have an entry of their own; above lie Han extensions, private use and nothing else.
TABLE_SIZE = 0x20000

SPACE = 1 << 0  #: str.isspace
ALPHA = 1 << 1  #: str.isalpha
UPPER = 1 << 2  #: str.isupper
DIGIT = 1 << 3  #: str.isdecimal
PUNCT = 1 << 4  #: in PUNCTUATION: does not make a token a word
CATEGORY_P = 1 << 5  #: Unicode category P*
TERMINAL = 1 << 6  #: in TERMINAL_PUNCTUATION
SENTENCE = 1 << 7  #: ends a sentence when it is a token of its own
PREFIX = 1 << 8  #: split off the front of a word
SUFFIX = 1 << 9  #: split off the end of a word
ICON = 1 << 10  #: category So: split off anywhere
LETTER = 1 << 11  #: between two of these a comma, hyphen, colon ... splits
LOWER_SIDE = 1 << 12  #: may stand before a full stop that splits
UPPER_SIDE = 1 << 13  #: may stand after it
STOP_SIDE = 1 << 14  #: a full stop after it is split off the end
ASCII_DIGIT = 1 << 15
HYPHEN = 1 << 16
MARK = 1 << 17  #: combining: belongs to the character before
SPACELESS = 1 << 18  #: letters of scripts written without spaces
LINE_END = 1 << 19  #: str.splitlines ends a line here
WORD_CHAR = 1 << 20  #: \w
HOST = 1 << 21  #: may begin or end the label of a host name
BULLET_GOPHER = 1 << 22
BULLET_REFINEDWEB = 1 << 23
INFIX = 1 << 24  #: may split a word from inside

TERMINAL_PUNCTUATION = frozenset(
    "᪩？⁈𑩂．꩞𑅃﹗𑂾\u1b7d፧𑅂꡶꘎⁉࠾᪨𑊩𑱂᱿𖩮᥅\U00011f43\U00011f44﹒𑈹𑈸።܂؞꛳\U00010f88𑗍𐩖𑙂\u061d꩟᠉\u1b7e𑗗᰼𑻸؟𑪜꧉𑗉𐽙𖫵𖬷܀꓿᜵𑗏𑁇𑗓𑥄៖𑥆𑗑𑗒꯫۔𐩗"
    "\U00010f86꡷\u2e54｡៕߹⸮.𑇅࠹𛲟꫰꤯𐽗᭞𑜼፨𑃁꣏𑇟𖬸𑪛𑜾࠷𝪈?𑃀𑗃！։꣎॥𑗖᭛᠃!၊𖺘⁇𑗌𑑋𖭄᭟𑅁𑙁⸼꩝𑗋。꧈꫱𑜽𐽖𑂿᙮។꛷\U00010f89៚᥄𑗕𑗎᪪᭚࠽𑇞𑗊𐽘"
    "\u2e53𑗔𖩯𑇍𑻷𐽕𑩃।𑗂𑇆𑁈။᱾𑱁꘏܁᜶‼𑈻‽᪫﹖𑑌𑈼\U00010f87𑗐៙᰻"
)
PUNCTUATION = (
    frozenset("!/—”:％１〈&(、━\\【#%「」，】；+^]~“《„';’{|∶´[=-`*．（–？！：$～«〉,><》)?）。…@_.\"}►»")
    | frozenset(map(chr, chain(range(9), range(11, 13), range(13, 32), range(127, 160))))
    | TERMINAL_PUNCTUATION
)
SENTENCE_ENDS = frozenset(
    "!.?։؟۔܀܁܂߹।॥၊။።፧፨᙮᜵᜶᠃᠉᥄᥅᪨᪩᪪᪫᭚᭛᭞᭟᰻᰼᱾᱿‼‽⁇⁈⁉⸮⸼꓿꘎꘏꛳꛷꡶꡷꣎꣏꤯꧈꧉꩝꩞꩟꫰꫱꯫﹒﹖﹗！．？𐩖𐩗𑁇𑁈𑂾𑂿𑃀𑃁𑅁𑅂𑅃𑇅𑇆𑇍𑇞𑇟𑈸𑈹𑈻𑈼𑊩"
    "𑑋𑑌𑗂𑗃𑗉𑗊𑗋𑗌𑗍𑗎𑗏𑗐𑗑𑗒𑗓𑗔𑗕𑗖𑗗𑙁𑙂𑜼𑜽𑜾𑩂𑩃𑪛𑪜𑱁𑱂𖩮𖩯𖫵𖬷𖬸𖭄𛲟𝪈｡。"
)
_AFFIX_PUNCTUATION = "…,:;!?¿؟¡()[]{}<>_#*&。？！，、；：～·।،۔؛٪"
_QUOTES = "'\"”“`‘´’‚„»«「」『』（）〔〕【】《》〈〉〈〉⟦⟧"
_CURRENCY = "$£€¥฿₽﷼₴₠₡₢₣₤₥₦₧₨₩₪₫₭₮₯₰₱₲₳₵₶₷₸₹₺₻₼₾₿"
_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_SPACELESS_RANGES = (  # as in shared/tools/score_dedup.py: Thai, Lao, Burmese, Khmer, kana, Han
    (0x0E00, 0x0EFF),
    (0x1000, 0x109F),
    (0x1780, 0x17FF),
    (0x3040, 0x30FF),
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x3FFFF),
)
#: Scripts without case, whose every character counts as a letter on both sides of a split
_UNCASED_RANGES = (
    (0x0591, 0x05F4),
    (0x0620, 0x06FF),
    (0x0750, 0x077F),
    (0x08A0, 0x08BD),
    (0x0900, 0x09FF),
    (0x0B80, 0x0BFF),
    (0x0C00, 0x0CFF),
    (0x0D80, 0x0DFF),
    (0x1100, 0x137F),
    (0x2E80, 0x2FDF),
    (0x2FF0, 0x303F),
    (0x3040, 0x30FF),
    (0x31C0, 0x31EF),
    (0x3200, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xAC00, 0xD7AF),
    (0xF900, 0xFAFF),
    (0xFB1D, 0xFDFB),
    (0xFE30, 0xFE4F),
    (0xFE70, 0xFEFC),
)
_BEYOND_TABLE = ALPHA | WORD_CHAR | LETTER | LOWER_SIDE | UPPER_SIDE | SPACELESS | STOP_SIDE


@cache
def character_flags() -> npt.NDArray[np.uint32]:
    """uint32[TABLE_SIZE + 2]: flags by code point; the last two are for Han above the table and for all else there."""
    of_category = {"Lu": ALPHA | WORD_CHAR | LETTER | UPPER | UPPER_SIDE, "Lt": ALPHA | WORD_CHAR | LETTER | UPPER_SIDE}
    of_category |= dict.fromkeys(("Ll", "Lm", "Lo"), ALPHA | WORD_CHAR | LETTER | LOWER_SIDE | STOP_SIDE)
    of_category |= {"Nd": DIGIT | WORD_CHAR, "Nl": WORD_CHAR, "No": WORD_CHAR, "So": ICON}
    of_category |= dict.fromkeys(("Mn", "Mc", "Me"), MARK)
    of_category |= dict.fromkeys(("Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po"), CATEGORY_P)
    table = np.zeros(TABLE_SIZE + 2, np.uint32)
    categories = map(unicodedata.category, map(chr, range(TABLE_SIZE)))
    table[:TABLE_SIZE] = np.fromiter((of_category.get(c, 0) for c in categories), np.uint32, TABLE_SIZE)
    _set(table, filter(str.isspace, map(chr, range(0x3001))), SPACE)
    _set(table, PUNCTUATION, PUNCT)
    _set(table, TERMINAL_PUNCTUATION, TERMINAL)
    _set(table, SENTENCE_ENDS, SENTENCE)
    _set(table, _AFFIX_PUNCTUATION + _QUOTES + "§%=—–" + _CURRENCY, PREFIX)
    _set(table, _AFFIX_PUNCTUATION + _QUOTES + "—–", SUFFIX)
    _set(table, _QUOTES, LOWER_SIDE | UPPER_SIDE | STOP_SIDE)
    _set(table, _AFFIX_PUNCTUATION + "0123456789%²-+|", STOP_SIDE)
    _set(table, "0123456789", ASCII_DIGIT)
    _set(table, "-–—~", HYPHEN)
    _set(table, _LINE_ENDS, LINE_END)
    _set(table, "_", WORD_CHAR)
    _set(table, "•-", BULLET_GOPHER)
    _set(table, "●•*-", BULLET_REFINEDWEB)
    for first, last in _UNCASED_RANGES:
        table[first : last + 1] |= LETTER | LOWER_SIDE | UPPER_SIDE | STOP_SIDE
    for first, last in _SPACELESS_RANGES:
        letters = table[first : last + 1]
        letters[(letters & (ALPHA | MARK)) != 0] |= SPACELESS
    table[ord("々")] |= SPACELESS
    table[0xA1:0x10000] |= HOST
    _set(table, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", HOST)
    table[(table & ICON) != 0] |= PREFIX | SUFFIX | INFIX
    _set(table, ".…+-*^,:<>=/–—~", INFIX)
    table[TABLE_SIZE] = _BEYOND_TABLE
    table.flags.writeable = False
    return table


def _set(table: npt.NDArray[np.uint32], chars: chain[str] | str | frozenset[str] | filter[str], flag: int) -> None:
    for char in chars:
        if ord(char) < TABLE_SIZE:
            table[ord(char)] |= flag


def units() -> tuple[str, ...]:
    """What is split off a number's end: 5km, 30%, 10€."""
    words = (
        "km km² km³ m m² m³ dm dm² dm³ cm cm² cm³ mm mm² mm³ ha µm nm yd in ft kg g mg µg t lb oz m/s km/h kmh mph hPa "
        "Pa mbar mb MB kb KB gb GB tb TB T G M K % км км² км³ м м² м³ дм дм² дм³ см см² см³ мм мм² мм³ нм кг г мг м/с "
        "км/ч кПа Па мбар Кб КБ кб Мб МБ мб Гб ГБ гб Тб ТБ US$ C$ A$"
    )
    return (*words.split(), *_CURRENCY)


@cache
def exceptions() -> dict[str, tuple[int, ...]]:
    """String -> lengths of the words that it is made of (one: it stays whole), where the affix rules are not asked."""
    table: dict[str, tuple[int, ...]] = {}

    def add(*parts: str) -> None:
        table["".join(parts)] = tuple(map(len, parts))

    for stems, endings in _CONTRACTIONS:
        for stem in stems.split():
            for form in (stem, stem.title()):
                for ending in endings.split():
                    add(form, *ending.split("|"))
    for hour in range(1, 13):
        for half in ("a.m.", "am", "p.m.", "pm"):
            add(str(hour), half)
    for parts in _DIVIDED.split("|"):
        add(*parts.split())
    for word in _AMBIGUOUS.split():
        table.pop(word, None)
    for word in _WHOLE.split():
        add(word)
    for letter in "abcdefghijklmnopqrstuvwxyzäöü":
        add(letter + ".")
    curled = {word.replace("'", "’"): parts for word, parts in table.items()}
    return curled | table


_WILL = "'ll ll 'll|'ve ll|ve 'd d 'd|'ve d|ve"
#: Stems, in lower and Title case, with each of the endings
_CONTRACTIONS = (
    ("i", "'m m 'm|a m|a"),
    ("i you he she it we they who what when where why how there that this these those", _WILL),
    ("i you we they who what when where why how there these those could might must should would", "'ve ve"),
    ("you we they who what when where why how there these those", "'re re"),
    ("he she it who what when where why how there that this", "'s s"),
    ("ca could do does did had may might must need ought sha should wo would", "n't nt n't|'ve nt|ve"),
    ("ai are is was were have has dare", "n't nt"),
)
_DIVIDED = (
    "y' all|y all|how 'd 'y|How 'd 'y|not 've|not ve|Not 've|Not ve|can not|Can not|gon na|Gon na|got ta|Got ta|"
    "let 's|Let 's|c'm on|C'm on|° c .|° f .|° k .|° C .|° F .|° K ."
)
_AMBIGUOUS = "Ill ill Its its Hell hell Shell shell Shed shed were Were Well well Whore whore"
_WHOLE = r"""
doin' Doin' goin' Goin' nothin' Nothin' nuthin' Nuthin' ol' Ol' somethin' Somethin' lovin' Lovin' havin' Havin'
'em 'll 'nuff 'S 's ‘S ‘s and/or w/o 're 'Cause 'cause 'cos 'Cos 'coz 'Coz 'cuz 'Cuz 'bout ma'am Ma'am o'clock O'clock
Mt. Ak. Ala. Apr. Ariz. Ark. Aug. Calif. Colo. Conn. Dec. Del. Feb. Fla. Ga. Ia. Id. Ill. Ind. Jan. Jul. Jun. Kan. Kans.
Ky. La. Mar. Mass. Mich. Minn. Miss. N.C. N.D. N.H. N.J. N.M. N.Y. Neb. Nebr. Nev. Nov. Oct. Okla. Ore. Pa. S.C. Sep.
Sept. Tenn. Va. Wash. Wis. 'd a.m. Adm. Bros. co. Co. Corp. D.C. Dr. e.g. E.g. E.G. Gen. Gov. i.e. I.e. I.E. Inc. Jr.
Ltd. Md. Messrs. Mo. Mont. Mr. Mrs. Ms. p.m. Ph.D. Prof. Rep. Rev. Sen. St. vs. v.s. \t \n — ' \") <space> '' C++
:) :-) :)) :-)) :))) :-))) (: (-: =) (= :] :-] [: [-: [= =] :o) (o: :} :-} 8) 8-) (-8 ;) ;-) (; (-; :( :-( :(( :-((
:((( :-((( ): )-: =( >:( :') :'-) :'( :'-( :/ :-/ =/ =| :| :-| ]= =[ :1 :P :-P :p :-p :O :-O :o :-o :0 :-0 :() >:o :*
:-* :3 :-3 =3 :> :-> :X :-X :x :-x :D :-D ;D ;-D =D xD XD xDD XDD 8D 8-D ^_^ ^__^ ^___^ >.< >.> <.< ._. ;_; -_- -__- v.v
V.V v_v V_V o_o o_O O_o O_O 0_o o_0 0_0 o.O O.o O.O o.o 0.0 o.0 0.o @_@ <3 <33 <333 </3 (^_^) (-_-) (._.) (>_<) (*_*)
(¬_¬) ಠ_ಠ ಠ︵ಠ (ಠ_ಠ) ¯\(ツ)/¯ (╯°□°）╯︵┻━┻ ><(((*>
"""
