"""A scripted NVMe/TCP host: one socket, exact bytes, every answer checked.

Happy path: Host(target) opens the admin queue (ICReq, Connect, enable); host.io() opens I/O queues;
conn.read(), conn.write() and the like do whole commands. A test that wants to misbehave builds its bytes
with wire.pdu() and sends them with conn.send(); conn.expect_term() and conn.expect_closed()
then say what has to happen. What the controller sends is judged in wire.py and in _take_*():
a broken rule raises ProtocolError, which fails the test whatever it was about.
"""
import random
import socket
import struct
import time

from daemon import (NQN, SCALE, Control, ControlError, Shared, Target, config,  # noqa: F401
                    find_program)
from runner import Skip, main, until  # noqa: F401
from wire import *  # noqa: F401,F403  (tests import everything from here)
from wire import check_header, need, parse  # noqa: F401

PATIENCE = 5 * SCALE
HOSTNQN = "nqn.2014-08.org.nvmexpress:uuid:6c9a4b1e-3a57-4d17-8bd1-5a1c7e000001"
HOSTID = bytes(range(1, 17))
CC_ENABLE = 0x00460001
SHN_NORMAL, SHN_ABRUPT = 1 << 14, 2 << 14


def pattern(seed, n):
    """n bytes that belong to seed alone."""
    return random.Random(seed).randbytes(n)


class Closed(Exception):
    """The peer ended the connection."""


class Command:
    """One command in flight: what it sends, what it got, how it ended."""

    def __init__(self, cid, sqe_bytes, data, read, hold):
        self.cid, self.sqe, self.data, self.hold = cid, sqe_bytes, data, hold
        self.want, self.got, self.last = read, bytearray(), False
        self.r2t_next, self.r2ts = 0, []
        self.cqe = None


class Conn:
    """One TCP connection, that is one queue."""

    def __init__(self, addr, *, hpda=0, hdgst=False, ddgst=False, maxr2t=0, timeout=PATIENCE,
                 rcvbuf=None, source=None):
        self.addr, self.timeout = addr, timeout
        family = socket.AF_INET6 if ":" in addr[0] else socket.AF_INET
        self.sock = socket.socket(family, socket.SOCK_STREAM)
        if rcvbuf:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, rcvbuf)
        self.sock.settimeout(timeout)
        if source:
            self.sock.bind((source, 0))
        self.sock.connect(addr)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.want_hpda, self.want_hdgst, self.want_ddgst = hpda, hdgst, ddgst
        self.maxr2t, self.hdgst, self.ddgst, self.hpda = maxr2t, False, False, 0
        self.maxh2cdata = self.capsule = 0
        self.cmds, self.next_cid, self.sent, self.sqsize = {}, 0, 0, 0
        self.flow_control = True
        self.nsid, self.bs = 1, 512
        self.qid = 0

    # bytes

    def close(self):
        self.sock.close()

    def reset(self):
        """Ends the connection with RST, as Linux does."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def send(self, raw):
        try:
            self.sock.sendall(raw)
        except (BrokenPipeError, ConnectionResetError) as e:
            raise Closed(str(e)) from e

    def recv_exact(self, n):
        out = bytearray(n)
        view, have = memoryview(out), 0
        while have < n:
            try:
                got = self.sock.recv_into(view[have:])
            except (ConnectionResetError, BrokenPipeError) as e:
                raise Closed(str(e)) from e
            if got == 0:
                need(have == 0, "the connection ended inside a PDU or header")
                raise Closed("end of stream")
            have += got
        return bytes(out)

    def pdu(self, ptype, psh, data=b"", **over):
        """A PDU under this connection's terms; see wire.pdu()."""
        return pdu(ptype, psh, data, **{"hdgst": self.hdgst, "ddgst": self.ddgst, **over})

    def recv_pdu(self):
        head = self.recv_exact(8)
        check_header(head, hdgst=self.hdgst, ddgst=self.ddgst, hpda=self.hpda)
        plen = struct.unpack_from("<I", head, 4)[0]
        return parse(head + self.recv_exact(plen - 8), hdgst=self.hdgst, ddgst=self.ddgst)

    # setting up

    def handshake(self):
        """ICReq and ICResp; the answer's digests must be exactly those that were asked for."""
        want = int(self.want_hdgst) | int(self.want_ddgst) << 1
        self.send(icreq(hpda=self.want_hpda, dgst=want, maxr2t=self.maxr2t))
        resp = self.recv_pdu()
        need(resp.type == ICRESP, "no ICResp but %r", resp)
        need(resp.pfv == 0 and resp.cpda == 0, "ICResp: PFV %d CPDA %d", resp.pfv, resp.cpda)
        need(resp.dgst == want, "ICResp: DGST %d, asked for %d", resp.dgst, want)
        need(resp.maxh2cdata >= 4096 and resp.maxh2cdata % 4 == 0, "MAXH2CDATA %d",
             resp.maxh2cdata)
        need(not any(resp.hdr[16:]), "ICResp: reserved bytes are not 0")
        self.hdgst, self.ddgst, self.hpda = self.want_hdgst, self.want_ddgst, self.want_hpda
        self.maxh2cdata = resp.maxh2cdata
        return resp

    def connect(self, subnqn, hostnqn=HOSTNQN, hostid=HOSTID, *, qid=0, cntlid=0xFFFF, sqsize=31,
                cattr=0, kato=0, data=None, **sqe_over):
        """The Connect command; returns its completion whatever it is."""
        body = connect_data(hostid, cntlid, subnqn, hostnqn) if data is None else data
        cqe = self.cmd(connect_sqe(qid, sqsize, cattr, kato, length=len(body), **sqe_over),
                       data=body, mode="raw")
        if cqe.status == 0:
            self.sqsize, self.qid = sqsize, qid
            self.flow_control = not cattr & 4
        return cqe

    # commands

    def new_cid(self):
        while self.next_cid in self.cmds:
            self.next_cid = (self.next_cid + 1) % 0xFFFF
        cid, self.next_cid = self.next_cid, (self.next_cid + 1) % 0xFFFF
        return cid

    def submit(self, what, nsid=0, *, data=b"", read=0, mode=None, cid=None, hold=False, sgl1=None,
               send=True, pdu_over=None, **fields):
        """Sends a command. what is an opcode or a whole SQE. data goes in the capsule when it fits
        (mode "capsule", "r2t" force it; "raw" leaves the SGL alone and sends data in the
        capsule). hold: the test answers R2Ts itself."""
        cid = self.new_cid() if cid is None else cid
        if mode is None:
            mode = "capsule" if data and len(data) <= self.capsule else "r2t"
        if sgl1 is None and data:
            sgl1 = sgl(len(data), SGL_CAPSULE if mode == "capsule" else SGL_TRANSPORT)
        elif sgl1 is None:
            sgl1 = sgl(read)
        if isinstance(what, bytes):
            raw = what[:2] + struct.pack("<H", cid) + what[4:]
            if mode != "raw" and (data or read):
                raw = raw[:24] + sgl1 + raw[40:]
        else:
            raw = sqe(what, nsid, cid=cid, sgl1=sgl1, **fields)
        command = Command(cid, raw, data, read, hold)
        inline = data if mode in ("capsule", "raw") else b""
        packet = self.pdu(CMD, raw, inline, **(pdu_over or {}))
        if not send:
            return packet
        self.cmds[cid] = command
        self.sent += 1
        self.send(packet)
        return command

    def answer(self, r2t, data=None, *, chunk=None, **over):
        """H2CData for an R2T out of its command's data."""
        data = self.cmds[r2t.cccid].data if data is None else data
        chunk = chunk or self.maxh2cdata
        end = r2t.r2to + r2t.r2tl
        for at in range(r2t.r2to, end, chunk):
            part = data[at:min(at + chunk, end)]
            self.send(h2c_data(r2t.cccid, r2t.ttag, at, part, last=at + chunk >= end,
                               **{"hdgst": self.hdgst, "ddgst": self.ddgst, **over}))
        command = self.cmds.get(r2t.cccid)
        if command and r2t in command.r2ts:
            command.r2ts.remove(r2t)

    def _take_r2t(self, p):
        command = self.cmds.get(p.cccid)
        need(command is not None and command.cqe is None, "%r for no command", p)
        need(p.r2to == command.r2t_next, "%r: expected offset %d", p, command.r2t_next)
        need(p.r2to + p.r2tl <= len(command.data), "%r: beyond %d bytes", p, len(command.data))
        need(len(command.r2ts) <= self.maxr2t, "%r: %d are outstanding", p, len(command.r2ts))
        tags = [r.ttag for c in self.cmds.values() for r in c.r2ts]
        need(p.ttag not in tags, "%r: its tag is outstanding already", p)
        command.r2t_next += p.r2tl
        command.r2ts.append(p)
        if not command.hold:
            self.answer(p)

    def _take_data(self, p):
        command = self.cmds.get(p.cccid)
        need(command is not None and command.cqe is None, "%r for no command", p)
        need(p.datao == len(command.got), "%r: expected offset %d", p, len(command.got))
        command.got += p.data
        need(len(command.got) <= command.want, "%r: more than %d", p, command.want)
        need(not command.last, "%r after the last one", p)
        command.last = bool(p.flags & F_LAST)
        need(not p.flags & F_SUCCESS or not self.flow_control, "%r: SUCCESS with flow control", p)
        if p.flags & F_SUCCESS:
            self._finish(command, Cqe(struct.pack("<IIHHHH", 0, 0, 0xFFFF, 0, p.cccid, 0)))

    def _take_resp(self, p):
        command = self.cmds.get(p.cqe.cid)
        need(command is not None and command.cqe is None, "%r for no command", p)
        self._finish(command, p.cqe)

    def _finish(self, command, cqe):
        if cqe.status == 0 and command.want:
            want = cqe.dw0 if command.sqe[0] == ZIP_READ and cqe.dw0 else command.want
            need(len(command.got) == want <= command.want and command.last,
                 "cid %d succeeded with %d of %d bytes", cqe.cid, len(command.got), want)
        need(not (cqe.status == 0 and command.data and command.r2ts), "%r: R2T is open", cqe)
        cqe.data = bytes(command.got)
        command.cqe = cqe
        self.cmds.pop(cqe.cid, None)

    def pump(self):
        """Receives one PDU, books it, returns it."""
        p = self.recv_pdu()
        if p.type == C2H_TERM:
            raise ProtocolError(f"C2HTermReq: FES {p.fes} FEI {p.fei}")
        {R2T: self._take_r2t, C2H_DATA: self._take_data, RESP: self._take_resp}.get(
            p.type, lambda p: need(False, "unexpected %r", p))(p)
        return p

    def wait(self, command, timeout=None):
        """Until this command has ended; returns its completion, with .data."""
        end = time.monotonic() + (timeout or self.timeout)
        while command.cqe is None:
            self.sock.settimeout(max(0.001, end - time.monotonic()))
            try:
                self.pump()
            except TimeoutError:
                raise AssertionError(f"no answer to {self.describe(command)}") from None
            finally:
                self.sock.settimeout(self.timeout)
        return command.cqe

    def next_r2t(self):
        """The next R2T, for commands submitted with hold."""
        while True:
            p = self.pump()
            if p.type == R2T:
                return p

    @staticmethod
    def describe(command):
        return f"opcode {command.sqe[0]:02x}h cid {command.cid}"

    def quiet(self, seconds=0.15):
        """Nothing arrives for this long."""
        self.sock.settimeout(seconds)
        try:
            got = self.sock.recv(65536)
        except TimeoutError:
            return
        finally:
            self.sock.settimeout(self.timeout)
        raise AssertionError(f"expected silence, got {got[:64].hex()}" if got else "closed")

    def cmd(self, what, nsid=0, **kw):
        timeout = kw.pop("timeout", None)
        return self.wait(self.submit(what, nsid, **kw), timeout)

    def ok(self, what, nsid=0, **kw):
        cqe = self.cmd(what, nsid, **kw)
        assert cqe.status == 0, f"opcode {what if isinstance(what, int) else what[0]:02x}h: {cqe}"
        return cqe

    def fails(self, status, what, nsid=0, *, dnr=True, **kw):
        """The command ends with this status (or one of several) and DNR as said (None: either)."""
        cqe = self.cmd(what, nsid, **kw)
        allowed = status if isinstance(status, (tuple, list, set)) else (status,)
        assert cqe.status in allowed, f"{cqe}: expected {[f'{s:03x}h' for s in allowed]}"
        assert dnr is None or cqe.dnr == dnr, f"{cqe}: DNR should be {int(dnr)}"
        return cqe

    # endings

    def expect_closed(self, timeout=None):
        """The peer ends the connection; whatever it still sends is read and ignored."""
        self.sock.settimeout(timeout or self.timeout)
        try:
            while self.sock.recv(65536):
                pass
        except (ConnectionResetError, BrokenPipeError):
            pass
        except TimeoutError:
            raise AssertionError("the connection is still open") from None

    def expect_closed_quietly(self):
        """The peer ends the connection and says nothing before."""
        try:
            left = self.sock.recv(65536)
            assert not left, f"expected no answer, got {left[:64].hex()}"
        except (ConnectionResetError, BrokenPipeError):
            pass
        except TimeoutError:
            raise AssertionError("the connection is still open") from None
        self.close()

    def expect_closed_after_faults(self):
        """The peer ends the connection once we close our side, with or without a TermReq."""
        try:
            self.sock.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        self.expect_closed()
        self.close()

    def expect_term(self, fes, fei=None, timeout=None, copy=None):
        """C2HTermReq with one of these FES (and FEI) comes, then nothing, then the end."""
        fes = fes if isinstance(fes, (tuple, list, set)) else (fes,)
        self.sock.settimeout(timeout or self.timeout)
        try:
            p = self.recv_pdu()
            while p.type != C2H_TERM:
                p = self.recv_pdu()
        except TimeoutError:
            raise AssertionError("no C2HTermReq") from None
        except Closed:
            raise AssertionError("closed without C2HTermReq") from None
        assert p.fes in fes, f"{p}: expected FES {fes}"
        if fei is not None:
            fei = fei if isinstance(fei, (tuple, list, set)) else (fei,)
            assert p.fei in fei, f"{p}: expected FEI {fei}"
        if copy is not None:
            need(p.data == copy[:len(p.data)] and p.data, "TermReq copies %s of %s",
                 p.data.hex(), copy.hex())
        self.expect_silent_end()
        return p

    def expect_silent_end(self):
        """After a TermReq: we close our side, the peer says nothing more and closes."""
        try:
            self.sock.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        self.sock.settimeout(self.timeout)
        try:
            left = self.sock.recv(65536)
            assert not left, f"more bytes after TermReq: {left[:64].hex()}"
        except (ConnectionResetError, BrokenPipeError):
            pass
        except TimeoutError:
            raise AssertionError("the connection stays open after a TermReq") from None
        self.close()

    # whole commands of the NVM command set; slba and lengths in blocks, data in bytes

    def _rw(self, opcode, slba, nlb, **kw):
        flags = kw.pop("dw12", 0) | (1 << 30 if kw.pop("fua", False) else 0)
        return opcode, kw.pop("nsid", self.nsid), {
            "cdw10": slba & 0xFFFFFFFF, "cdw11": slba >> 32, "cdw12": (nlb - 1) & 0xFFFF | flags,
            **kw}

    def rw(self, opcode, slba, nlb, **kw):
        """Submits an I/O command and returns it, not yet waited for."""
        opcode, nsid, kw = self._rw(opcode, slba, nlb, **kw)
        return self.submit(opcode, nsid, **kw)

    def read(self, slba, nlb=1, **kw):
        cqe = self.wait(self.rw(READ, slba, nlb, read=nlb * self.bs, **kw))
        assert cqe.status == 0, f"read {slba}+{nlb}: {cqe}"
        return cqe.data

    def write(self, slba, data, **kw):
        cqe = self.wait(self.rw(WRITE, slba, len(data) // self.bs, data=data, **kw))
        assert cqe.status == 0, f"write {slba}+{len(data) // self.bs}: {cqe}"
        return cqe

    def io(self, opcode, slba, nlb, **kw):
        """An I/O command to its end, whatever it is."""
        return self.wait(self.rw(opcode, slba, nlb, **kw))

    def dsm(self, ranges, *, ad=True, nsid=None, nr=None, **kw):
        """ranges: (slba, blocks)."""
        body = b"".join(struct.pack("<IIQ", 0, n, lba) for lba, n in ranges)
        return self.cmd(DSM, self.nsid if nsid is None else nsid, data=body,
                        cdw10=(len(ranges) if nr is None else nr) - 1, cdw11=4 if ad else 3, **kw)

    # admin commands

    def property_get(self, ofst, size8=False):
        return self.ok(property_get(ofst, size8)).value

    def property_set(self, ofst, value, size8=False):
        return self.ok(property_set(ofst, value, size8))

    def identify(self, cns, nsid=0, *, cntid=0, csi=0, cdw11=0):
        return self.ok(ADM_IDENTIFY, nsid, cdw10=cns | cntid << 16, cdw11=cdw11 | csi << 24,
                       read=4096).data

    def log_cmd(self, lid, length, *, offset=0, rae=False, nsid=0xFFFFFFFF, lsp=0, **kw):
        numd = length // 4 - 1
        return self.cmd(ADM_GET_LOG, nsid, read=kw.pop("read", length),
                        cdw10=lid | lsp << 8 | int(rae) << 15 | (numd & 0xFFFF) << 16,
                        cdw11=numd >> 16, cdw12=offset & 0xFFFFFFFF, cdw13=offset >> 32, **kw)

    def log(self, lid, length, **kw):
        cqe = self.log_cmd(lid, length, **kw)
        assert cqe.status == 0, f"log {lid:02x}h: {cqe}"
        return cqe.data

    def get_feature(self, fid, *, sel=0, nsid=0, **kw):
        return self.cmd(ADM_GET_FEATURES, nsid, cdw10=fid | sel << 8, **kw)

    def set_feature(self, fid, value=0, *, sv=0, nsid=0, **kw):
        return self.cmd(ADM_SET_FEATURES, nsid, cdw10=fid | sv << 31, cdw11=value, **kw)

    def abort(self, sqid, cid):
        """True when the controller says that it aborted the command."""
        return not self.ok(ADM_ABORT, cdw10=sqid | cid << 16).dw0 & 1

    def aer(self):
        return self.submit(ADM_AER)

    def keep_alive(self):
        return self.ok(ADM_KEEP_ALIVE)

    def enable(self, cc=CC_ENABLE):
        self.property_set(0x14, cc)
        end = time.monotonic() + self.timeout
        while not self.property_get(0x1C) & 1:
            assert time.monotonic() < end, "CSTS.RDY stays 0"
            time.sleep(0.01)


class Host:
    """An association: an admin queue and I/O queues of one controller."""

    def __init__(self, target, *, subnqn=None, hostnqn=HOSTNQN, hostid=HOSTID, kato=0, queues=4,
                 enable=True, addr=None, cattr=0, sqsize=31, nsid=1, **terms):
        self.target, self.subnqn = target, subnqn or target.nqn
        self.hostnqn, self.hostid, self.terms = hostnqn, hostid, terms
        self.addr, self.queues, self.conns, self.nsid = addr or target.addr, {}, [], nsid
        self.admin = self.open()
        cqe = self.admin.connect(self.subnqn, hostnqn, hostid, kato=kato, sqsize=sqsize,
                                 cattr=cattr)
        assert cqe.status == 0, f"Connect: {cqe}"
        self.cntlid = cqe.dw0 & 0xFFFF
        self.admin.capsule = 8192
        if not enable:
            return
        self.admin.enable()
        self.ctrl = self.admin.identify(1)
        self.capsule = struct.unpack_from("<I", self.ctrl, 1792)[0] * 16 - 64
        if queues and self.ctrl[111] == 1:
            got = self.admin.set_feature(7, (queues - 1) | (queues - 1) << 16)
            assert got.status == 0, f"number of queues: {got}"
            self.granted = min(got.dw0 & 0xFFFF, got.dw0 >> 16) + 1

    def open(self, **terms):
        conn = Conn(self.addr, **{**self.terms, **terms})
        self.conns.append(conn)
        conn.handshake()
        conn.nsid = self.nsid
        return conn

    def io(self, qid=None, *, sqsize=31, cattr=0, **terms):
        """One more I/O queue."""
        qid = len(self.queues) + 1 if qid is None else qid
        conn = self.open(**terms)
        cqe = conn.connect(self.subnqn, self.hostnqn, self.hostid, qid=qid, cntlid=self.cntlid,
                           sqsize=sqsize, cattr=cattr)
        assert cqe.status == 0, f"Connect of queue {qid}: {cqe}"
        conn.capsule = self.capsule
        conn.bs = self.block_size()
        self.queues[qid] = conn
        return conn

    def block_size(self, nsid=None):
        ns = self.admin.identify(0, self.nsid if nsid is None else nsid)
        return 1 << ns[128 + 4 * (ns[26] & 15) + 2] if any(ns) else 512

    def close(self):
        """I/O queues first, then admin, without ceremony."""
        for conn in reversed(self.conns):
            conn.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.close()


class Bystander:
    """A second host that must notice nothing: an I/O queue and blocks that are its own, written
    before and checked after whatever happens inside the with-block."""

    def __init__(self, target, *, slba=1024, nlb=16, nsid=1):
        self.host = Host(target, hostnqn="bystander", hostid=bytes([9]) * 16, nsid=nsid)
        self.io, self.slba, self.nlb, self.round = self.host.io(), slba, nlb, 0

    def __enter__(self):
        self.check()
        return self

    def check(self):
        """Its data is intact; leaves new data."""
        if self.round:
            assert self.io.read(self.slba, self.nlb) == self.data, "the bystander's data changed"
        self.round += 1
        self.data = pattern(f"bystander {self.round}", self.nlb * self.io.bs)
        self.io.write(self.slba, self.data)
        assert self.io.read(self.slba, self.nlb) == self.data
        self.host.admin.keep_alive()

    def __exit__(self, etype, *_):
        if etype is None:
            self.check()
        self.host.close()
