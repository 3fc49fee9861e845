"""Function calling in the forms that chat templates teach: forms, a grammar where a call must come, a parser."""

from gateway.tools.calling import Calling, explained
from gateway.tools.forms import CallForm, form_of
from gateway.tools.parser import CallParser, Parsed

__all__ = ["CallForm", "CallParser", "Calling", "Parsed", "explained", "form_of"]
