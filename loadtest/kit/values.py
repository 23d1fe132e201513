"""What operators and clients of PushUp know as well: its settings, the order of its epochs, how tickets are signed."""

from __future__ import annotations

from pushup.backends.tickets import Tickets
from pushup.core.cursor import order_of
from pushup.core.limits import ChannelPolicy, Limits
from pushup.host.build_form import form
from pushup.net.api.schemas import PublicationLimits

__all__ = ["ChannelPolicy", "Limits", "PublicationLimits", "Tickets", "form", "order_of"]
