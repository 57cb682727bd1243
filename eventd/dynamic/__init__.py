"""What plugins derive: parts, and the effective configuration that is made of them and of what is declared."""

from __future__ import annotations
