"""Transfer of weights between processes and machines, by any transport that their hosts have: see `interface`."""

from .hosts import choose_transport as choose_transport
from .hosts import this_host as this_host
from .interface import WeightPublisher as WeightPublisher
from .interface import WeightReader as WeightReader
from .interface import weight_publisher as weight_publisher
from .interface import weight_reader as weight_reader
from .select_transport import ChosenTransport as ChosenTransport
from .select_transport import Host as Host
