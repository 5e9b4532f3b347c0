"""What the scan's njit kernels share: columns of the counts, kinds of spans, indices into the running state."""

from __future__ import annotations

#: Columns of `Blocks.counts`. Characters are counted as they are written: white space and references count one each.
(
    CHARS,
    WORDS,
    LINK_CHARS,  # in <a href>
    LINK_WORDS,
    SENTENCES,  # ends of
    COMMAS,
    PUNCTUATION,  # other than commas and sentence ends
    DIGITS,
    UPPER,
    CJK,  # letters of scripts written without spaces
    BOLD_CHARS,
    IMAGES,
    BREAKS,  # <br>
    TITLE_WORDS,  # words that stand in <title>, among its first 64
    STARTS_UPPER,  # 1: the first word's first letter is a capital
    END_KIND,  # how it ends: 0 other, 1 as a sentence, 2 colon, 3 comma or semicolon, 4 dots
    HIDDEN,  # characters that a browser does not show
    N_COUNTS,
) = range(18)

#: How a block ends
END_OTHER, END_SENTENCE, END_COLON, END_COMMA, END_DOTS = range(5)

#: Flags of a span
SPACED = 1 << 0  #: white space stands before it
BROKEN = 1 << 1  #: a line break stands before it
PRE = 1 << 2  #: its white space counts

#: Indices into the state, int64[N_STATE]: of the page,
(
    N_ELEMENTS,
    N_BLOCKS,
    N_SPANS,
    N_TOKENS,
    N_OPEN,  # elements on the stack
    OVER_BLOCK,  # block-level elements that the stack had no room for
    OVER_INLINE,
    LINKS,  # open <a href>
    BOLDS,
    PRES,
    TITLE_START,
    TITLE_END,
    N_TITLE_WORDS,
    COLLECT,  # 1: the words of this text are those of the title
    UNCLOSED,  # bits of the tags whose end tag is not to be found: no use to look again
    LINKED,  # 1: the start tag that was read last has an href
    NUMBERED,  # 1: it says a number: that of a list's first item, or an item's
    NUMBER,
    # of the block that is open: all 0 when it begins
    ANY,  # 1: it has text
    SPACE,  # 1: white space after its text
    IN_WORD,  # 1: its text ends within a word, 2: after a letter of a script without spaces
    STOP,  # 1: a full stop that may end a sentence, depending on what follows
    ENDED,  # 1: a sentence has ended and no word has followed
    DOT_RUN,  # full stops in a row
    N_BREAKS,  # <br> since its last text
    N_STATE,
) = range(26)
FIRST_OF_BLOCK = ANY

#: Deepest stack. Inline elements beyond half of it and others beyond all of it have no entry: what they hold belongs
#: to the element that is open there.
MAX_OPEN, MAX_OPEN_INLINE = 1024, 512
#: Levels that an end tag looks up for its element
REACH = 64
MAX_TITLE_WORDS, TITLE_SLOTS = 64, 256

#: Flags of a stack entry
OPEN_LINK, OPEN_BOLD, OPEN_PRE = 1, 2, 4
