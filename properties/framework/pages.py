"""Reports as JUnit XML, and as one HTML page that needs no other file."""

from collections.abc import Sequence
from html import escape
from xml.etree import ElementTree

from .report import PASSED, SKIPPED, Report, Result

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; color: #1c1c1c; }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; padding: .3rem .6rem; vertical-align: top; }
tr { border-top: 1px solid #ddd; } .passed { color: #17692f; } .broken, .vacuous { color: #a01818; } .skipped { color: #666; }
pre { background: #f5f5f5; padding: .8rem; overflow-x: auto; }
"""


def junit_of(reports: Sequence[Report]) -> str:
    """Return reports as JUnit XML: a suite for each report, a case for each law."""
    root = ElementTree.Element("testsuites")
    for report in reports:
        failures, skipped = len(report.failures), sum(one.outcome == SKIPPED for one in report.results)
        counts = {"tests": len(report.results), "failures": failures, "skipped": skipped}
        seconds = sum(one.seconds for one in report.results)
        words = {name: str(count) for name, count in counts.items()}
        about = {"name": f"{report.suite} {report.subject}", "time": f"{seconds:.3f}", **words}
        suite = ElementTree.SubElement(root, "testsuite", about)
        for one in report.results:
            name = {"name": one.law.name, "classname": f"{report.suite}.{report.subject}", "time": f"{one.seconds:.3f}"}
            case = ElementTree.SubElement(suite, "testcase", name)
            if one.outcome == SKIPPED:
                ElementTree.SubElement(case, "skipped", message=_printable(one.detail))
            elif not one.holds:
                failure = ElementTree.SubElement(case, "failure", type=one.outcome, message=_printable(one.detail))
                failure.text = _printable(one.text())
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _printable(text: str) -> str:
    """Return the text without the control characters that XML does not allow."""
    return "".join(c if c in "\t\n\r" or ord(c) >= 32 else f"\\x{ord(c):02x}" for c in text)


def html_of(reports: Sequence[Report]) -> str:
    """Return reports as one page: a table for each, with the counterexamples below."""
    parts = [f"<!doctype html><html lang=en><meta charset=utf-8><title>Laws</title><style>{STYLE}</style><h1>Laws</h1>"]
    for report in reports:
        passed = sum(one.outcome == PASSED for one in report.results)
        head = f"{report.subject}: {passed} of {len(report.results)} laws of {report.suite} passed"
        parts.append(f"<h2>{escape(head)}</h2><table><tr><th>law<th>outcome<th>claim<th>seen")
        parts += [_row(one) for one in report.results]
        parts.append("</table>")
        parts += [f"<h3>{escape(one.law.name)}</h3><pre>{escape(one.text())}</pre>" for one in report.failures]
    return "\n".join(parts) + "\n</html>\n"


def _row(one: Result) -> str:
    cells = (one.law.claim, one.detail if one.outcome == SKIPPED else one.events())
    outcome = f"<td class={one.outcome}>{one.outcome}"
    return f"<tr><td>{escape(one.law.name)}{outcome}" + "".join(f"<td>{escape(cell)}" for cell in cells)
