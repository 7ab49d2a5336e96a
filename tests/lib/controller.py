"""A scripted NVMe/TCP controller: honest until a test says otherwise.

Happy path: Controller(nqn) listens on a free port of the loopback; every connection is served by a thread of
its own (Link), which judges what the host sends and answers from a disk in memory. A test that wants it to
misbehave arms it: c.arm("read", evil) makes the next read be answered by evil(link, cmd) instead, with exact
bytes: link.c2h(), link.resp(), link.r2t(), link.send().

What can fail: the host. Whatever it must not send is kept in c.problems, and a H2CTermReq in c.terms.
"""
import collections
import random
import socket
import struct
import threading

from initiator import HOSTNQN
from wire import *  # noqa: F403
from wire import digest, header

BLOCK = 512
CAP = 127 | 1 << 16 | 20 << 24 | 1 << 37  # 128 entries, CQR, 10 s, NVM command set
CAPSULE = 8192  # bytes of data in a capsule
MAXH2CDATA = 32768
NS_CHANGED = 0x040002  # asynchronous event: notice, namespace attribute changed, log 04h

IO_NAMES = {FLUSH: "flush", WRITE: "write", READ: "read", COMPARE: "compare",
            WRITE_ZEROES: "zeroes", DSM: "dsm", ZIP_READ: "zip_read", ZIP_WRITE: "zip_write"}
FABRICS_NAMES = {FC_PROP_SET: "property_set", FC_CONNECT: "connect", FC_PROP_GET: "property_get"}
ADMIN_NAMES = {ADM_GET_LOG: "log", ADM_IDENTIFY: "identify", ADM_SET_FEATURES: "set_features",
               ADM_AER: "aer", ADM_KEEP_ALIVE: "keep_alive"}
IDENTIFY_NAMES = {0: "identify_ns", 1: "identify_ctrl", 2: "ns_list", 3: "ns_descriptors"}
PROPERTY_NAMES = {0: "cap", 8: "vs", 0x14: "cc", 0x1C: "csts"}


class Gone(Exception):
    """The host has ended the connection, or we have."""


class Problem(Exception):
    """The host sent what NVMe/TCP does not allow a host to send."""


def must(cond, text, *args):
    if not cond:
        raise Problem(text % args)


class Command:
    """A command of the host, and the data that it brought."""

    def __init__(self, raw, data):
        self.sqe, self.data = raw, data
        self.opcode, self.flags, self.cid, self.nsid = struct.unpack_from("<BBHI", raw)
        self.fctype = raw[4]
        _, self.len, self.sgl_type = struct.unpack_from("<QI3xB", raw, 24)
        self.cdw10, self.cdw11, self.cdw12 = struct.unpack_from("<III", raw, 40)
        self.slba, self.nlb = self.cdw10 | self.cdw11 << 32, (self.cdw12 & 0xFFFF) + 1
        self.name = "?"

    def __repr__(self):
        return f"{self.name} cid {self.cid:04x} of {self.len} bytes"


class Link:
    """One connection, that is one queue."""

    def __init__(self, ctrl, sock):
        self.ctrl, self.sock = ctrl, sock
        self.hdgst = self.ddgst = False
        self.cpda = 0
        self.qid, self.aers, self.backlog = None, [], collections.deque()
        self.asked = {}  # ttag: [command, next offset, end, bytes of the command so far]
        self.next_tag = 0x7001
        self.lock = threading.Lock()

    # bytes

    def send(self, raw):
        try:
            with self.lock:
                self.sock.sendall(raw)
        except OSError as e:
            raise Gone(str(e)) from e

    def trickle(self, raw):
        for i in range(len(raw)):
            self.send(raw[i:i + 1])

    def close(self):
        """An end with FIN; what is unread makes it a RST."""
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.sock.close()
        raise Gone("we closed")

    def reset(self):
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()
        raise Gone("we reset")

    def recv(self, n):
        out = bytearray()
        while len(out) < n:
            try:
                got = self.sock.recv(n - len(out))
            except OSError as e:
                raise Gone(str(e)) from e
            if not got:
                raise Gone("end of stream")
            out += got
        return bytes(out)

    def silence(self):
        """Reads on, and answers nothing more."""
        while True:
            self.recv_any()

    # PDUs of the host

    def recv_any(self):
        """A PDU: type, flags, header, data. Only its form is judged."""
        head = self.recv(8)
        ptype, flags, hlen, pdo, plen = struct.unpack("<BBBBI", head)
        must(ptype in HLEN and hlen == HLEN[ptype], "type %02x with HLEN %d", ptype, hlen)
        must(hlen <= plen <= 1 << 22, "PLEN %d", plen)
        raw = head + self.recv(plen - 8)
        if ptype == H2C_TERM:
            fes, fei = struct.unpack_from("<HI", raw, 8)
            self.ctrl.terms.append((fes, fei))
            raise Gone(f"H2CTermReq {fes} {fei}")
        if ptype == ICREQ:
            return ptype, flags, raw, b""
        must(bool(flags & F_HDGST) == self.hdgst, "type %02x: HDGSTF", ptype)
        if self.hdgst:
            must(raw[hlen:hlen + 4] == digest(raw[:hlen]), "type %02x: header digest", ptype)
        data = b""
        if plen > hlen + 4 * self.hdgst:
            unit = (self.cpda + 1) * 4
            must(pdo == -(-(hlen + 4 * self.hdgst) // unit) * unit, "type %02x: PDO %d", ptype, pdo)
            must(bool(flags & F_DDGST) == self.ddgst, "type %02x: DDGSTF", ptype)
            data = raw[pdo:plen - 4 * self.ddgst]
            if self.ddgst and raw[-4:] != digest(data):
                self.ctrl.bad_digests += 1
        return ptype, flags, raw, data

    def next_cmd(self):
        """The next command; data of R2Ts that comes meanwhile is taken."""
        while not self.backlog:
            ptype, flags, raw, data = self.recv_any()
            if ptype == CMD:
                self.backlog.append(self.name(Command(raw[8:72], data)))
            elif ptype == H2C_DATA:
                self.take_data(flags, raw, data)
            else:
                raise Problem(f"PDU of type {ptype:02x}")
        return self.backlog.popleft()

    def name(self, c):
        must(c.flags & ~3 == PSDT_SGL, "%r: flags %02x", c, c.flags)
        if c.opcode == FABRICS:
            c.name = FABRICS_NAMES.get(c.fctype, "fabrics")
            if c.name == "connect" and struct.unpack_from("<H", c.sqe, 42)[0]:
                c.name = "io_connect"
            elif c.name.startswith("property"):
                ofst = struct.unpack_from("<I", c.sqe, 44)[0]
                c.name = PROPERTY_NAMES.get(ofst, "property")
        elif self.qid:
            c.name = IO_NAMES.get(c.opcode, "io")
        else:
            c.name = ADMIN_NAMES.get(c.opcode, "admin")
            if c.name == "identify":
                c.name = IDENTIFY_NAMES.get(c.cdw10 & 0xFF, "identify")
        return c

    def ask(self, c, off, length):
        """An honest R2T."""
        tag = self.next_tag
        self.next_tag += 1
        self.asked[tag] = [c, off, off + length]
        self.r2t(c.cid, tag, off, length)
        return tag

    def take_data(self, flags, raw, data):
        cccid, ttag, datao, datal = struct.unpack_from("<HHII", raw, 8)
        ask = self.asked.get(ttag)
        must(ask is not None, "H2CData for tag %04x", ttag)
        c, at, end = ask
        must(cccid == c.cid and datao == at and 0 < datal == len(data) and at + datal <= end,
             "H2CData: cid %04x offset %d length %d, due are %d to %d", cccid, datao, datal, at, end)
        must(datal <= self.ctrl.maxh2cdata, "H2CData of %d bytes", datal)
        must(bool(flags & F_LAST) == (datao + datal == end), "H2CData: LAST_PDU")
        self.ctrl.written.append((c.slba * BLOCK + datao, data))
        ask[1] += datal
        if ask[1] == end:
            del self.asked[ttag]

    def collect(self, *tags):
        """Until the data of these R2Ts is in; commands that come meanwhile wait."""
        while any(t in self.asked for t in tags):
            ptype, flags, raw, data = self.recv_any()
            if ptype == CMD:
                self.backlog.append(self.name(Command(raw[8:72], data)))
            else:
                must(ptype == H2C_DATA, "PDU of type %02x", ptype)
                self.take_data(flags, raw, data)

    # PDUs of ours; whatever is named replaces what would be right

    def pdu(self, ptype, psh, data=b"", **over):
        return pdu(ptype, psh, data, **{"hdgst": self.hdgst, "ddgst": self.ddgst, **over})

    def c2h_pdu(self, cid, off, data, *, last=False, success=False, datal=None, **over):
        flags = (F_LAST if last else 0) | (F_SUCCESS if success else 0) | over.pop("flags", 0)
        psh = struct.pack("<HHIII", cid, 0, off, len(data) if datal is None else datal, 0)
        return self.pdu(C2H_DATA, psh, data, flags=flags, **over)

    def resp_pdu(self, cid, status=0, dw0=0, dw1=0, sqhd=0, sqid=0, bits=0, **over):
        return self.pdu(RESP, struct.pack("<IIHHHH", dw0, dw1, sqhd, sqid, cid, status << 1 | bits),
                        **over)

    def r2t_pdu(self, cid, ttag, off, length, **over):
        return self.pdu(R2T, struct.pack("<HHIII", cid, ttag, off, length, 0), **over)

    def c2h(self, *args, **kw):
        self.send(self.c2h_pdu(*args, **kw))

    def resp(self, *args, **kw):
        self.send(self.resp_pdu(*args, **kw))

    def r2t(self, *args, **kw):
        self.send(self.r2t_pdu(*args, **kw))

    def give(self, c, data, dw0=0):
        """Data and a response, as an admin queue has them."""
        self.send(self.c2h_pdu(c.cid, 0, data[:c.len], last=True) + self.resp_pdu(c.cid, dw0=dw0))

    # honest answers

    def answer(self, c):
        evil = self.ctrl.take_evil(c.name)
        (evil or getattr(Link, "do_" + c.name, Link.do_other))(self, c)

    def do_other(self, c):
        self.resp(c.cid, SC_OPCODE)

    def do_connect(self, c):
        qid, sqsize = struct.unpack_from("<HH", c.sqe, 42)
        must(len(c.data) == 1024 and c.data[256:].split(b"\0")[0].decode() == self.ctrl.nqn,
             "Connect with %d bytes of data", len(c.data))
        must(self.qid is None and sqsize > 0, "a second Connect, or queue size %d", sqsize)
        self.qid = qid
        self.resp(c.cid, dw0=self.ctrl.cntlid)

    do_io_connect = do_connect

    def do_cap(self, c):
        self.resp(c.cid, dw0=self.ctrl.cap & 0xFFFFFFFF, dw1=self.ctrl.cap >> 32)

    def do_vs(self, c):
        self.resp(c.cid, dw0=0x10400)

    def do_cc(self, c):
        self.resp(c.cid)

    def do_csts(self, c):
        self.resp(c.cid, dw0=1)

    def do_identify_ctrl(self, c):
        self.give(c, self.ctrl.id_ctrl())

    def do_identify_ns(self, c):
        self.give(c, self.ctrl.id_ns())

    def do_ns_list(self, c):
        self.give(c, struct.pack("<I", 1 if c.nsid < 1 else 0).ljust(4096, b"\0"))

    def do_ns_descriptors(self, c):
        self.give(c, (bytes([3, 16, 0, 0]) + self.ctrl.uuid).ljust(4096, b"\0"))

    def do_set_features(self, c):
        n = self.ctrl.queues - 1
        self.resp(c.cid, dw0=(n | n << 16) if c.cdw10 & 0xFF == 7 else 0)

    def do_log(self, c):
        self.give(c, struct.pack("<I", 1).ljust(c.len, b"\0"))

    def do_aer(self, c):
        self.aers.append(c.cid)

    def do_keep_alive(self, c):
        self.resp(c.cid)

    def do_flush(self, c):
        self.resp(c.cid)

    def do_read(self, c):
        self.send(self.c2h_pdu(c.cid, 0, self.ctrl.blocks(c), last=True, success=True))

    def do_write(self, c):
        data = c.data
        if not data:
            self.collect(self.ask(c, 0, c.len))
            at = c.slba * BLOCK
            data = b"".join(d for o, d in self.ctrl.written if at <= o < at + c.len)[-c.len:]
        self.ctrl.store(c, data)
        self.resp(c.cid)

    def do_zeroes(self, c):
        self.ctrl.store(c, bytes(c.nlb * BLOCK))
        self.resp(c.cid)

    # life

    def handshake(self):
        ptype, _, raw, _ = self.recv_any()
        must(ptype == ICREQ, "the first PDU is of type %02x", ptype)
        pfv, hpda, dgst, _ = struct.unpack_from("<HBBI", raw, 8)
        must(pfv == 0 and hpda == 0 and not any(raw[16:]), "ICReq: %s", raw.hex())
        evil = self.ctrl.take_evil("icreq")
        if evil:
            evil(self, dgst)
            return
        self.welcome(dgst)

    def welcome(self, dgst, **over):
        self.send(icresp(dgst=dgst, **{"cpda": self.ctrl.cpda, "maxh2cdata": self.ctrl.maxh2cdata,
                                       **over}))
        self.agree(dgst)

    def agree(self, dgst):
        self.hdgst, self.ddgst, self.cpda = bool(dgst & 1), bool(dgst & 2), self.ctrl.cpda

    def run(self):
        try:
            self.handshake()
            while True:
                self.answer(self.next_cmd())
        except Gone:
            pass
        except Problem as e:
            self.ctrl.problems.append(str(e))
        except Exception as e:  # a bug of the script must not pass for silence
            self.ctrl.problems.append(f"the script fails: {type(e).__name__}: {e}")
        finally:
            self.ctrl.links.discard(self)
            self.sock.close()


def icresp(pfv=0, cpda=0, dgst=0, maxh2cdata=MAXH2CDATA, rsvd=bytes(112), **over):
    return pdu(ICRESP, struct.pack("<HBBI", pfv, cpda, dgst, maxh2cdata) + rsvd, **over)


class Controller:
    """A subsystem with one namespace, on a port of its own. Its fields may be changed at any time."""

    def __init__(self, nqn, *, size=1 << 20, seed=None, **fields):
        self.nqn, self.cap, self.cntlid, self.queues = nqn, CAP, 1, 4
        self.cpda, self.maxh2cdata = 0, MAXH2CDATA
        self.ctrl_fields, self.ns_fields = {}, {}  # offset: bytes, of the Identify structures
        self.uuid = (nqn * 16).encode()[-16:]
        self.evil, self.terms, self.problems, self.written = {}, [], [], []
        self.bad_digests, self.accepted, self.links = 0, 0, set()
        self.lock = threading.Lock()
        self.nr_blocks = size // BLOCK
        self.disk = bytearray(random.Random(seed or nqn).randbytes(size))
        self.__dict__.update(fields)
        self.sock = socket.socket()
        self.sock.bind(("127.0.0.1", 0))
        self.sock.listen(64)
        self.addr = self.sock.getsockname()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                sock, _ = self.sock.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.accepted += 1
            link = Link(self, sock)
            self.links.add(link)
            threading.Thread(target=link.run, daemon=True).start()

    def close(self):
        self.sock.close()
        for link in list(self.links):
            try:
                link.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def entry(self, **settings):
        """A subsystem of nvme-cli's JSON that leads here."""
        addr, port = self.addr
        return {"nqn": self.nqn, "ports": [{"transport": "tcp", "traddr": addr, "trsvcid": str(port),
                                            "reconnect_delay": 1, **settings}]}

    # misbehaving

    def arm(self, what, evil, times=1):
        """The next commands of this name go to evil(link, cmd)."""
        with self.lock:
            self.evil[what] = [evil, times]

    def take_evil(self, what):
        with self.lock:
            armed = self.evil.get(what)
            if not armed or armed[1] == 0:
                return None
            armed[1] -= 1
            return armed[0]

    def event(self, dw0=NS_CHANGED):
        """Answers an Asynchronous Event Request, if the host has sent one."""
        for link in list(self.links):
            if link.aers:
                link.resp(link.aers.pop(0), dw0=dw0)
                return True
        return False

    # the disk

    def blocks(self, c):
        return bytes(self.disk[c.slba * BLOCK:(c.slba + c.nlb) * BLOCK])

    def store(self, c, data):
        self.disk[c.slba * BLOCK:c.slba * BLOCK + len(data)] = data

    def id_ctrl(self):
        d = bytearray(4096)
        d[4:24] = b"SCRIPTED".ljust(20)
        d[24:64] = b"scripted controller".ljust(40)
        for at, form, value in ((78, "H", self.cntlid), (80, "I", 0x10400), (92, "I", 0x100), (111, "B", 1),
                                (258, "B", 3), (259, "B", 3), (320, "H", 10), (512, "B", 0x66),
                                (513, "B", 0x44), (514, "H", 128), (516, "I", 1), (520, "H", 0xC),
                                (525, "B", 1), (536, "I", 0x100005), (1792, "I", 4 + CAPSULE // 16),
                                (1796, "I", 1), (1803, "B", 1)):
            struct.pack_into("<" + form, d, at, value)
        d[768:768 + len(self.nqn)] = self.nqn.encode()
        return patched(d, self.ctrl_fields)

    def id_ns(self):
        d = bytearray(4096)
        struct.pack_into("<QQQ", d, 0, self.nr_blocks, self.nr_blocks, self.nr_blocks)
        struct.pack_into("<I", d, 128, 9 << 16)
        return patched(d, self.ns_fields)


def hosts_json(*entries):
    """nvme-cli's JSON with these subsystems."""
    return [{"hostnqn": HOSTNQN, "hostid": HOSTNQN.rpartition(":")[2], "subsystems": list(entries)}]


def patched(d, fields):
    for at, value in fields.items():
        d[at:at + len(value)] = value
    return bytes(d)


class Once:
    """What many tests look at, made on first use. What went wrong then goes wrong for each of them."""

    def __init__(self, make):
        self.make, self.made, self.error = make, None, None

    def __call__(self):
        if self.error:
            raise AssertionError(self.error)
        if not self.made:
            try:
                self.made = self.make()
            except BaseException as e:
                self.error = f"the rows did not run: {e!r}"
                raise
        return self.made
