"""Why a problem gives no kernel of the compiler's."""

from __future__ import annotations


class CannotTeach(Exception):
    """The compiler's code does not fit the form that is taught; its text is a short reason for a table."""
