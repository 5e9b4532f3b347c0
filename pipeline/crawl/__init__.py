"""Crawl files to pages.

How the parts fit, for one input file or a part of it:

    uris = sources.expand(inputs, base=recipe.input.base, files=n)       # on the driver, before anything is read
    groups = sources.group_identical(map(sources.identify, uris))        # one input each, named by its first member

    def open_items(after):                                               # in the supervised child
        ordinal, offset, first = after or (-1, 0, 0)
        with sources.open_at(uri, offset) as stream:
            for event in warc.read(stream, start_offset=offset, start_ordinal=first, limits=recipe.limits):
                if event.ordinal > ordinal:
                    yield (event.ordinal, event.offset, event.first_ordinal), event

    for outcome in supervise.supervised(open_items, handle, describe=..., cpu_seconds=..., memory_mib=...):
        ...                                                              # in the task: one row, in order

`handle` decodes (`decode.decode`), asks the URL filter (`urls.blocked`) and goes on to extraction; a Gap is a row of
its own, a Skipped is only counted.
"""
