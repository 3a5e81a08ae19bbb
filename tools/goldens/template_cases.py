"""Chat templates and what Jinja2, set up by Transformers, makes of them."""

from __future__ import annotations

import copy
import datetime
import json
from pathlib import Path

from jinja2 import TemplateError
from transformers.utils.chat_template_utils import _compile_jinja_template

from .template_chats import CHATS, TEMPLATES
from .template_features import CONTEXT, FEATURES

NOW = datetime.datetime(2026, 1, 2, 3, 4, 5)


def _rendered(template: str, context: dict) -> dict[str, str]:
    try:
        return {
            "expected": _compile_jinja_template(template).render(strftime_now=NOW.strftime, **copy.deepcopy(context))
        }
    except (TemplateError, TypeError, ValueError, ZeroDivisionError) as error:
        return {"error": f"{type(error).__name__}: {error}"}


def write_templates(goldens: Path) -> None:
    """Writes chat_templates/cases.json; strftime_now is fixed at `now`; a case holds `expected` or `error`."""
    context = {key: CONTEXT[key] for key in CONTEXT}
    features = [{"name": name, "template": template, **_rendered(template, context)} for name, template in FEATURES]
    chats = []
    for template_name, template in TEMPLATES.items():
        for chat_name, chat in CHATS.items():
            full = {"bos_token": "<s>", "eos_token": "</s>", **chat}
            chats.append({"template": template_name, "chat": chat_name, **_rendered(template, full)})
    folder = goldens / "chat_templates"
    folder.mkdir(parents=True, exist_ok=True)

    def lines(cases: list[dict]) -> str:
        return "[\n" + ",\n".join(json.dumps(case) for case in cases) + "\n]"

    (folder / "cases.json").write_text(
        f'{{"now": {json.dumps(NOW.isoformat())},\n'
        f'"feature_context": {json.dumps(context)},\n"features": {lines(features)},\n'
        f'"chat_tokens": {json.dumps({"bos_token": "<s>", "eos_token": "</s>"})},\n'
        f'"templates": {json.dumps(TEMPLATES, indent=1)},\n"chats": {json.dumps(CHATS, indent=1)},\n'
        f'"rendered": {lines(chats)}\n}}\n'
    )
    errors = sum("error" in case for case in features + chats)
    print(f"chat_templates: {len(features)} features, {len(chats)} chats, {errors} of them errors")
