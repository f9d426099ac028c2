"""Write a table as a Markdown page, from the records of its runs."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from permalign.evaluation.plots import TITLES
from permalign.evaluation.significance import Spread
from permalign.files import write_text
from permalign.reproduction.cells import Row, Table
from permalign.reproduction.records import RunRecord
from permalign.reproduction.summary import CellResult, leads, p_values, summarize

NOT_RUN = "not run"


def write_report(
    table: Table, records: Mapping[str, RunRecord], folder: str | Path, settings: Iterable[str] = ()
) -> Path:
    """Write the page of a table, ``TABLE.md``; returns its path."""
    settings = tuple(settings)
    path = Path(folder) / f"{table.name}.md"
    write_text(path, as_markdown(table, summarize(table, records, settings), settings))
    return path


def command_of(table: Table, pattern: str | None, seeds: Sequence[int], settings: Sequence[str]) -> str:
    """The command that reproduces a table or, with a pattern, some of its cells."""
    words = ["permalign", "reproduce", table.name]
    words += ["--cell", pattern] if pattern else []
    words += ["--seeds", ",".join(map(str, seeds))]
    return shlex.join([*words, *(word for setting in settings for word in ("--set", setting))])


def as_markdown(table: Table, results: dict[str, CellResult], settings: Sequence[str]) -> str:
    """The page of a table: its numbers, significance tests, and the commands that reproduce each cell."""
    parts = [f"# {table.title}", f"Made by `{command_of(table, None, table.seeds, settings)}`."]
    if settings:
        changes = ", ".join(f"`{setting}`" for setting in settings)
        parts.append(f"**Every run has these options changed: {changes}.**")
    parts += table.notes
    if table.metrics:
        parts.append(_legend(table))
        parts += [_published(table, results)] if table.published else []
        parts += [_grid(table, results, metric) for metric in table.metrics]
        parts += [_signatures(results), *_significance(table, results)]
    else:
        parts += _examples(table, results)
    parts += [_provenance(table, results, settings), _machines(results)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _legend(table: Table) -> str:
    """A paragraph that explains the cells of a table."""
    seeds = len(table.seeds)
    content = (
        "the score of one seed"
        if seeds == 1
        else f"the mean over {seeds} seeds ± the sample standard deviation"
    )
    papers = any(cell.paper is not None for cell in table.cells)
    parts = [
        f"A cell shows {content}" + (", followed by *the paper's number* in italics." if papers else "."),
        "A number in brackets is the number of seeds, if it is different.",
        "Systems marked with † are not in the paper.",
        f'A cell whose run is missing says "{NOT_RUN}".',
    ]
    return " ".join(parts)


def _title(row: Row) -> str:
    return f"{row.title} †" if row.ours else row.title


def markdown_table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table with a header row."""
    ruler = ["---"] * len(head)
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, ruler, *lines))


def _grid(table: Table, results: dict[str, CellResult], metric: str) -> str:
    lines = []
    for row in table.rows:
        line = [_title(row)]
        for column in table.columns:
            cell = table.cell(row, column)
            main = metric == table.metrics[0]
            line.append(
                table.absent if cell is None else _format_cell(table, results[cell.name], metric, paper=main)
            )
        lines.append(line)
    head = ["", *(column.title for column in table.columns)]
    return f"## {TITLES.get(metric, metric)}\n\n{markdown_table(head, lines)}"


def _format_cell(table: Table, result: CellResult, metric: str, paper: bool) -> str:
    spread = result.spread(metric)
    ours = NOT_RUN if spread is None else format_spread(spread, len(table.seeds))
    if spread is None and result.problem is not None:
        ours = "failed" if result.key is not None else NOT_RUN
    number = result.cell.paper
    return ours if number is None or not paper else f"{ours}, *{number:.1f}*"


def format_spread(spread: Spread, seeds: int) -> str:
    """Write a mean and its deviation; the number of values follows in brackets if it is not ``seeds``.

    >>> format_spread(Spread((80.0, 90.0, 85.0)), 3), format_spread(Spread((80.0,)), 3)
    ('85.0 ± 5.0', '80.0 (1)')
    """
    deviation = "" if spread.deviation is None else f" ± {spread.deviation:.1f}"
    count = "" if len(spread.values) == seeds else f" ({len(spread.values)})"
    return f"{spread.mean:.1f}{deviation}{count}"


def _published(table: Table, results: dict[str, CellResult]) -> str:
    """Our systems beside published ones: the means of groups of columns, over the columns that were run."""
    metric = table.metrics[0]
    lines = [
        [_title(row), *(_group_mean(table, results, row, keys, metric) for keys in table.groups.values())]
        for row in table.rows
    ]
    for system in table.published:
        numbers = (system.numbers.get(title) for title in table.groups)
        title = f"{system.title} (pretrained)" if system.pretrained else system.title
        lines.append([f"*{title}*", *("" if number is None else f"*{number:.1f}*" for number in numbers)])
    text = (
        "The numbers of published systems are in italics; those of our systems are means over the splits of a kind and "
        "over seeds."
    )
    table_text = markdown_table(["", *table.groups], lines)
    return f"## {TITLES[metric]}, beside published systems\n\n{text}\n\n{table_text}"


def _group_mean(
    table: Table, results: dict[str, CellResult], row: Row, keys: Sequence[str], metric: str
) -> str:
    """The mean of a row over several columns, with the smallest number of seeds in brackets if it is not that of the
    table; it says so if a column was not run.
    """
    cells = [results[name] for key in keys if (name := f"{row.key}/{key}") in results]
    spreads = [spread for cell in cells if (spread := cell.spread(metric))]
    if not cells:
        return ""
    if len(spreads) < len(cells):
        return NOT_RUN
    mean = sum(spread.mean for spread in spreads) / len(spreads)
    seeds = min(len(spread.values) for spread in spreads)
    return f"{mean:.1f}" if seeds == len(table.seeds) else f"{mean:.1f} ({seeds})"


def _signatures(results: dict[str, CellResult]) -> str:
    """How BLEU and chrF were computed, by sacreBLEU's own signatures; empty if the table has neither."""
    found = {
        f"{TITLES[metric]}: `{signature}`"
        for result in results.values()
        for evaluation in result.evaluations
        for metric, signature in evaluation.get("signatures", {}).items()
    }
    return f"Signatures of sacreBLEU: {'; '.join(sorted(found))}." if found else ""


def _significance(table: Table, results: dict[str, CellResult]) -> list[str]:
    tests = [p_values(table, results, column) for column in table.columns]
    titles = {row.key: row.title for row in table.rows}
    if not any(by_row for _, by_row in tests):
        return []
    lines = [["best baseline", *(titles.get(best or "", "") for best, _ in tests)]]
    for row in table.rows:
        values = [by_row.get(row.key) for _, by_row in tests]
        if any(value is not None for value in values):
            lines.append([_title(row), *("" if value is None else f"{value:.3f}" for value in values)])
    head = ["", *(column.title for column in table.columns)]
    text = (
        f"Each system is compared with the baseline that has the best {TITLES[table.metrics[0]]} in the column. The "
        f"numbers are two-sided p-values of {_test_of(table.metrics[0])}."
    )
    return [
        f"## Against the best baseline\n\n{text}\n\n{markdown_table(head, lines)}",
        _leads(table, results),
    ]


def _test_of(metric: str) -> str:
    """The significance test of a metric, in words."""
    if metric == "bleu":
        return (
            "paired approximate randomization, which exchanges the outputs of random test sentences between the two "
            "systems; scores are averaged over the seeds that both have"
        )
    return "a paired permutation test over the test examples, whose scores are averaged over seeds"


def _leads(table: Table, results: dict[str, CellResult]) -> str:
    """The best system of each column against the best other system."""
    lines = [
        [
            lead.column.title,
            lead.given or "the training set only",
            _title(lead.best),
            _title(lead.other),
            f"{lead.difference:.1f}",
            f"{lead.p_value:.3f}",
        ]
        for lead in leads(table, results)
    ]
    head = ["", "given", "best system", "best other system", "difference", "p"]
    text = (
        "The best system of each column is compared with the best other system that is given the same, by the same "
        "test."
    )
    return f"## Against the best other system\n\n{text}\n\n{markdown_table(head, lines)}"


def _examples(table: Table, results: dict[str, CellResult]) -> list[str]:
    parts = []
    for result in results.values():
        row = next(row for row in table.rows if row.key == result.cell.row)
        column = next(column for column in table.columns if column.key == result.cell.column)
        parts.append(f"## {column.title}: {_title(row)}")
        if not result.records:
            parts.append(NOT_RUN)
        for example in result.evaluations[0]["explained"] if result.evaluations else ():
            lines = [
                f"source     {example['source']}",
                f"reordered  {example['reordered']}",
                f"segments   {example['source_segments']}",
                f"output     {example['output_segments'] or example['output']}",
            ]
            lines += [] if example["correct"] else [f"reference  {example['target']}"]
            parts.append(
                f"Example {example['id']}, {'correct' if example['correct'] else 'wrong'}:\n\n```text\n"
                + "\n".join(lines)
                + "\n```"
            )
    return parts


def _provenance(table: Table, results: dict[str, CellResult], settings: Sequence[str]) -> str:
    lines = []
    for name, result in results.items():
        if not result.records:
            continue
        seeds = [record.seed for record in result.records]
        dev = Spread(tuple(record.dev["best"] for record in result.records))
        limits = {record.options.get("training", {}).get("max_cpu_minutes") for record in result.records} - {
            None
        }
        budget = "".join(f" (limit: {limit:g} CPU minutes)" for limit in limits)
        commits = sorted({_short(record.environment.get("commit")) for record in result.records})
        lines.append(
            [
                f"`{name}`",
                ", ".join(map(str, seeds)),
                f"{format_spread(dev, len(seeds))} ({result.records[0].dev['split']})",
                f"{result.seconds / 60:.1f}{budget}",
                ", ".join(commits),
                f"`{command_of(table, name, seeds, settings)}`",
            ]
        )
    head = ["cell", "seeds", "best development score", "minutes, all seeds", "commit", "command"]
    text = (
        "Minutes include training and evaluation of all seeds. A run that several cells share is counted in each of "
        "them. `runs.jsonl` has the options, all development scores and the test results of every run."
    )
    parts = [f"## How each cell was made\n\n{text}\n\n{markdown_table(head, lines)}"] if lines else []
    return "\n\n".join([*parts, *_problems(results)])


def _problems(results: dict[str, CellResult]) -> list[str]:
    """A section that lists the cells without results whose run failed or whose options are invalid."""
    lines = [
        f"- `{name}`: {result.problem.partition(' Choose from:')[0]}"
        for name, result in results.items()
        if result.problem is not None
    ]
    return ["## Cells that could not be run\n\n" + "\n".join(lines)] if lines else []


def _short(commit: object) -> str:
    """The first digits of a commit; a + follows if there were uncommitted changes.

    >>> _short("279bb73e0f6c1b2a-dirty")
    '279bb73e0f+'
    """
    return str(commit)[:10] + ("+" if str(commit).endswith("-dirty") else "")


def _machines(results: dict[str, CellResult]) -> str:
    environments = [record.environment for result in results.values() for record in result.records]
    lines = [
        f"- {machine.get('system')}, {machine.get('processor')}, {machine.get('cores')} cores, "
        f"{machine.get('threads')} thread(s) for each run, Python {machine.get('python')}"
        for machine in environments
    ]
    return "## Machine\n\n" + "\n".join(dict.fromkeys(lines)) if lines else ""
