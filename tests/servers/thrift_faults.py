"""What may be done to a call of Thrift, beside the faults of a connection: an answer, a wait."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from hmsclient.genthrift.hive_metastore import ThriftHiveMetastore
from pymetastore.hive_metastore import ThriftHiveMetastore as newer
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TMessageType
from thrift.transport.TTransport import TMemoryBuffer


@dataclass(frozen=True)
class Refusal:
    """Answer with a MetaException in the server's place, which never hears of the call."""

    message: str

    def reply_to(self, method: str, sequence: int) -> bytes:
        """Return the reply, without a frame."""
        name = f"{method}_result"
        # hmsclient's bindings are of a release without catalogs.
        module = ThriftHiveMetastore if hasattr(ThriftHiveMetastore, name) else newer
        result = getattr(module, name)()
        fields = [spec for spec in result.thrift_spec if spec is not None and spec[3]]
        name, kind = next(
            (each[2], each[3][0])
            for each in fields
            if getattr(each[3][0], "__name__", "") == "MetaException"
        )
        setattr(result, name, kind(message=self.message))
        buffer = TMemoryBuffer()
        protocol = TBinaryProtocol(buffer)
        protocol.writeMessageBegin(method, TMessageType.REPLY, sequence)
        result.write(protocol)
        protocol.writeMessageEnd()
        return bytes(buffer.getvalue())


@dataclass(frozen=True)
class Hold:
    """Set ``arrived``, and keep the call from the server until ``release`` is set."""

    arrived: threading.Event = field(default_factory=threading.Event)
    release: threading.Event = field(default_factory=threading.Event)
