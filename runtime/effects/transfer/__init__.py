"""Weights between processes and machines, by whichever way its hosts have: see `interface`."""

from .interface import Inlet as Inlet
from .interface import Outlet as Outlet
from .interface import inlet as inlet
from .interface import outlet as outlet
