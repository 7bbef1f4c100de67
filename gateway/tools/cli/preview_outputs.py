"""The forms in which ``preview`` writes its results: the options that name them, and the outputs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.base import logs

if TYPE_CHECKING:
    from gateway.config.merge.model import Config
    from gateway.tools.preview.forecast import Forecast
    from gateway.tools.preview.report import Output


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that name outputs to *parser*."""
    add = parser.add_argument
    shape = parser.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="print a document of the kind PreviewReport")
    shape.add_argument(
        "--argocd-ignore",
        action="store_true",
        help="print the ignoreDifferences of an Application of Argo CD for what webhooks change",
    )
    add("--sarif", metavar="FILE", type=_file, help="also write the findings as SARIF, for code scanning")
    add("--junit", metavar="FILE", type=_file, help="also write the results as JUnit's XML")
    add(
        "--code-quality", metavar="FILE", type=_file, help="also write the findings for GitLab's Code Quality"
    )
    add("--markdown", metavar="FILE", type=_file, help="also write the results as a comment in Markdown")
    add("--write", metavar="DIR", type=Path, help="also write the objects after all changes to files in DIR")


def _file(text: str) -> Path:
    if text == "-":
        raise argparse.ArgumentTypeError("found -, expected a file: standard output has the text, or --json")
    return Path(text)


def outputs(
    parsed: argparse.Namespace, config: Config, about: dict[str, object], forecast: Forecast | None
) -> list[Output]:
    """Return the outputs that were chosen; *about* has what the preview is about, with *forecast*.

    Raises:
        GatewayError: the folder of ``--write`` has files.
        OSError: a file cannot be written.
    """
    from gateway.tools.preview.text import JsonOutput, TextOutput

    found: list[Output] = []
    if parsed.argocd_ignore:
        from gateway.tools.preview.argocd import IgnoredDifferences

        found.append(IgnoredDifferences(logs.print_text))
    elif parsed.json:
        found.append(JsonOutput(logs.print_text, about))
    else:
        found.append(TextOutput(logs.print_output))
    if parsed.sarif is not None:
        from gateway.tools.preview.sarif import SarifOutput

        found.append(SarifOutput(parsed.sarif, config, forecast))
    if parsed.junit is not None:
        from gateway.tools.preview.junit import JunitOutput

        found.append(JunitOutput(parsed.junit, forecast))
    if parsed.code_quality is not None:
        from gateway.tools.preview.code_quality import CodeQualityOutput

        found.append(CodeQualityOutput(parsed.code_quality, forecast))
    if parsed.markdown is not None:
        from gateway.tools.preview.markdown import MarkdownOutput

        found.append(MarkdownOutput(parsed.markdown, forecast))
    if parsed.write is not None:
        from gateway.tools.preview.written import WrittenObjects

        found.append(WrittenObjects(parsed.write))
    return found
