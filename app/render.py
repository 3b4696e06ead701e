"""Templates: pinned version + data -> body. Sandboxed, strict, and pure."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from jinja2 import StrictUndefined, Template, TemplateError, UndefinedError, meta
from jinja2.sandbox import ImmutableSandboxedEnvironment

from app.ground.errors import DaybookError

# Tenants write templates: the sandbox keeps them from reaching anything but their own variables.
ENVIRONMENT = ImmutableSandboxedEnvironment(undefined=StrictUndefined, autoescape=False, keep_trailing_newline=True)


class BadTemplate(DaybookError):
    """A template does not parse, or uses what it does not declare."""


class CannotRender(DaybookError):
    """A body cannot be made of this version and data; the message names no value."""


@lru_cache(maxsize=512)
def _compiled(body: str) -> Template:
    return ENVIRONMENT.from_string(body)


def variables_of(body: str) -> set[str]:
    """Name the variables that a body uses; BadTemplate when it does not parse."""
    try:
        return meta.find_undeclared_variables(ENVIRONMENT.parse(body))
    except TemplateError as error:
        raise BadTemplate(f"the body does not parse: {error}") from error


def render(body: str, data: Mapping[str, object]) -> str:
    """Fill a body in; CannotRender when a variable is missing or the sandbox refuses."""
    try:
        return _compiled(body).render(dict(data))
    except UndefinedError as error:
        raise CannotRender("a variable is missing") from error
    except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:
        # The data's own types meet the template's expressions here; the message might quote a value.
        raise CannotRender(f"the template refuses this data ({type(error).__name__})") from error


def body_for(bodies: Mapping[str, str], *, locale: str | None, default_locale: str) -> str:
    """Choose the body for a locale: the exact one, its language, or the default."""
    if locale is not None:
        for wanted in (locale, locale.partition("-")[0]):
            if wanted in bodies:
                return bodies[wanted]
    return bodies[default_locale]
