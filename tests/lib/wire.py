"""The bytes of NVMe/TCP: CRC32C, every PDU, submission queue entries.

Builders take each field of a PDU as an override, so that a test can make any of them wrong; what a
test does not name is right. The parser of received PDUs is strict: it raises ProtocolError for
everything that NVMe/TCP does not allow a controller to send. Nothing here owns a socket.
"""
import ctypes
import struct

ICREQ, ICRESP, H2C_TERM, C2H_TERM, CMD, RESP, H2C_DATA, C2H_DATA, R2T = 0, 1, 2, 3, 4, 5, 6, 7, 9
F_HDGST, F_DDGST, F_LAST, F_SUCCESS = 1, 2, 4, 8
HLEN = {ICREQ: 128, ICRESP: 128, H2C_TERM: 24, C2H_TERM: 24, CMD: 72, RESP: 24, H2C_DATA: 24,
        C2H_DATA: 24, R2T: 24}
NAMES = {ICREQ: "ICReq", ICRESP: "ICResp", H2C_TERM: "H2CTermReq", C2H_TERM: "C2HTermReq",
         CMD: "CapsuleCmd", RESP: "CapsuleResp", H2C_DATA: "H2CData", C2H_DATA: "C2HData",
         R2T: "R2T"}
FROM_CTRL = (ICRESP, C2H_TERM, RESP, C2H_DATA, R2T)

FES_FIELD, FES_SEQUENCE, FES_HDGST, FES_RANGE, FES_LIMIT, FES_UNSUPPORTED = 1, 2, 3, 4, 5, 6

SGL_CAPSULE, SGL_TRANSPORT = 0x01, 0x5A
PSDT_SGL = 0x40
FUSE_FIRST, FUSE_SECOND = 1, 2

# Opcodes
ADM_GET_LOG, ADM_IDENTIFY, ADM_ABORT, ADM_SET_FEATURES, ADM_GET_FEATURES = 0x02, 0x06, 0x08, 9, 10
ZIP_WRITE, ZIP_READ, ZIP_FID = 0xC1, 0xC2, 0xD0  # ours: compressed transfers
ADM_AER, ADM_NS_MGMT, ADM_NS_ATTACH, ADM_KEEP_ALIVE, ADM_FORMAT = 0x0C, 0x0D, 0x15, 0x18, 0x80
FABRICS = 0x7F
FC_PROP_SET, FC_CONNECT, FC_PROP_GET, FC_AUTH_SEND, FC_AUTH_RECV, FC_DISCONNECT = 0, 1, 4, 5, 6, 8
FLUSH, WRITE, READ, WRITE_UNCOR, COMPARE, WRITE_ZEROES, DSM, VERIFY, COPY = \
    0x00, 0x01, 0x02, 0x04, 0x05, 0x08, 0x09, 0x0C, 0x19

# Status, as in the reference: SCT * 100h + SC
SC_OK, SC_OPCODE, SC_FIELD, SC_CID, SC_XFER, SC_INTERNAL, SC_ABORTED = 0, 1, 2, 3, 4, 6, 7
SC_SQ_DELETED, SC_FUSED_FAIL, SC_FUSED_MISSING, SC_NS, SC_SEQUENCE = 8, 9, 0x0A, 0x0B, 0x0C
SC_SGL_LEN, SC_SGL_TYPE, SC_ATOMIC, SC_SGL_OFFSET, SC_KATO, SC_TRANSIENT = \
    0x0F, 0x11, 0x14, 0x16, 0x1A, 0x22
SC_LBA, SC_CAPACITY = 0x80, 0x81
SC_ABORT_LIMIT, SC_AER_LIMIT, SC_LOG_PAGE, SC_NOT_SAVEABLE, SC_NOT_CHANGEABLE, SC_NOT_NS = \
    0x103, 0x105, 0x109, 0x10D, 0x10E, 0x10F
SC_FMT, SC_BUSY, SC_PARAM, SC_HOST, SC_QTYPE = 0x180, 0x181, 0x182, 0x184, 0x185
SC_SIZE_LIMIT, SC_OVERLAP = 0x183, 0x187
SC_WRITE_FAULT, SC_UNRECOVERED, SC_COMPARE = 0x280, 0x281, 0x285

DISCOVERY_NQN = "nqn.2014-08.org.nvmexpress.discovery"


class ProtocolError(AssertionError):
    """The controller sent what NVMe/TCP does not allow."""


# --- CRC32C -------------------------------------------------------------------------------------

def _crc_table():
    table = [[0] * 256 for _ in range(8)]
    for i in range(256):
        crc = i
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
        table[0][i] = crc
    for i in range(256):
        crc = table[0][i]
        for k in range(1, 8):
            crc = table[0][crc & 255] ^ (crc >> 8)
            table[k][i] = crc
    return table


_T = _crc_table()


def crc32c_table(data):
    """CRC32C by eight tables; the reference for the quick one."""
    crc = 0xFFFFFFFF
    t0, t1, t2, t3, t4, t5, t6, t7 = _T
    whole = len(data) & ~7
    for low, high in struct.iter_unpack("<II", bytes(data[:whole])):
        low ^= crc
        crc = (t7[low & 255] ^ t6[low >> 8 & 255] ^ t5[low >> 16 & 255] ^ t4[low >> 24]
               ^ t3[high & 255] ^ t2[high >> 8 & 255] ^ t1[high >> 16 & 255] ^ t0[high >> 24])
    for byte in data[whole:]:
        crc = t0[(crc ^ byte) & 255] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _quick_crc():
    """ISA-L when it is there and agrees with the tables: they are too slow for megabytes."""
    try:
        isal = ctypes.CDLL("libisal.so.2").crc32_iscsi
    except (OSError, AttributeError):
        return crc32c_table
    isal.argtypes = (ctypes.c_char_p, ctypes.c_int, ctypes.c_uint32)
    isal.restype = ctypes.c_uint32

    def crc32c_isal(data):
        data = bytes(data)
        return isal(data, len(data), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return crc32c_isal if crc32c_isal(b"123456789") == 0xE3069283 else crc32c_table


crc32c = _quick_crc()


def digest(data):
    return struct.pack("<I", crc32c(data))


# --- PDUs that a host sends ---------------------------------------------------------------------

def header(ptype, flags=0, hlen=None, pdo=0, plen=None, total=0):
    return struct.pack("<BBBBI", ptype, flags, HLEN.get(ptype, 8) if hlen is None else hlen, pdo,
                       total if plen is None else plen)


def pdu(ptype, psh, data=b"", *, hdgst=False, ddgst=False, pda=0, flags=0, set_flags=None,
        hlen=None, pdo=None, plen=None, hdgst_value=None, ddgst_value=None, pad=0):
    """A whole PDU as bytes. flags are added to the digest flags; set_flags replaces them all.
    hlen, pdo and plen replace the header fields only, the bytes stay where they should be."""
    hdr_len = 8 + len(psh)
    at = hdr_len + (4 if hdgst else 0)
    if data:
        at = -(-at // ((pda + 1) * 4)) * ((pda + 1) * 4)
    total = at + len(data) + (4 if ddgst and data else 0)
    flags |= (F_HDGST if hdgst else 0) | (F_DDGST if ddgst and data else 0)
    if set_flags is not None:
        flags = set_flags
    head = header(ptype, flags, hdr_len if hlen is None else hlen,
                  (at if data else 0) if pdo is None else pdo, plen, total) + psh
    out = head
    if hdgst:
        out += digest(head) if hdgst_value is None else struct.pack("<I", hdgst_value)
    if data:
        out += bytes([pad]) * (at - len(out)) + bytes(data)
        if ddgst:
            out += digest(data) if ddgst_value is None else struct.pack("<I", ddgst_value)
    return out


def icreq(pfv=0, hpda=0, dgst=0, maxr2t=0, rsvd=bytes(112), **over):
    return pdu(ICREQ, struct.pack("<HBBI", pfv, hpda, dgst, maxr2t) + rsvd, **over)


def term(fes=1, fei=0, bad=b"", ptype=H2C_TERM, **over):
    body = pdu(ptype, struct.pack("<HI", fes, fei) + bytes(10), **over)
    return body[:4] + struct.pack("<I", over.get("plen", len(body) + len(bad))) + body[8:] + bad


def h2c_data(cccid, ttag, datao, data, last=True, datal=None, **over):
    psh = struct.pack("<HHIII", cccid, ttag, datao, len(data) if datal is None else datal, 0)
    return pdu(H2C_DATA, psh, data, flags=F_LAST if last else 0, **over)


def sgl(length=0, kind=SGL_TRANSPORT, addr=0):
    return struct.pack("<QI3xB", addr, length, kind)


def sqe(opcode, nsid=0, *, cid=0, flags=PSDT_SGL, fuse=0, sgl1=None, cdw2=0, cdw3=0, mptr=0,
        cdw10=0, cdw11=0, cdw12=0, cdw13=0, cdw14=0, cdw15=0):
    return struct.pack("<BBHIIIQ16sIIIIII", opcode, flags | fuse, cid, nsid, cdw2, cdw3, mptr,
                       sgl() if sgl1 is None else sgl1, cdw10, cdw11, cdw12, cdw13, cdw14, cdw15)


def fabrics(fctype, rest=b"", *, cid=0, flags=PSDT_SGL, sgl1=None):
    """A Fabrics command; rest is what follows the SGL, from byte 40."""
    return (struct.pack("<BBHB19x16s", FABRICS, flags, cid, fctype,
                        sgl() if sgl1 is None else sgl1) + rest).ljust(64, b"\0")


def connect_sqe(qid=0, sqsize=31, cattr=0, kato=0, recfmt=0, length=1024, cid=0, sgl1=None):
    return fabrics(FC_CONNECT, struct.pack("<HHHBxI", recfmt, qid, sqsize, cattr, kato), cid=cid,
                   sgl1=sgl(length, SGL_CAPSULE) if sgl1 is None else sgl1)


def nqn_field(name):
    """256 bytes; bytes are taken as they are, so that they may lack the NUL."""
    raw = name if isinstance(name, bytes) else name.encode()
    return raw[:256].ljust(256, b"\0")


def connect_data(hostid, cntlid, subnqn, hostnqn):
    return (hostid + struct.pack("<H", cntlid) + bytes(238) + nqn_field(subnqn)
            + nqn_field(hostnqn) + bytes(256))


def property_get(ofst, size8=False, cid=0):
    return fabrics(FC_PROP_GET, struct.pack("<B3xIQ", int(size8), ofst, 0), cid=cid)


def property_set(ofst, value, size8=False, cid=0):
    return fabrics(FC_PROP_SET, struct.pack("<B3xIQ", int(size8), ofst, value), cid=cid)


# --- PDUs that a controller sends ---------------------------------------------------------------

class Pdu:
    """A received PDU, its fields by name: hdr and data always, then those of its type."""

    def __init__(self, hdr, data):
        self.hdr, self.data = hdr, data
        self.type, self.flags, self.hlen, self.pdo, self.plen = struct.unpack_from("<BBBBI", hdr)
        if self.type == ICRESP:
            self.pfv, self.cpda, self.dgst, self.maxh2cdata = struct.unpack_from("<HBBI", hdr, 8)
        elif self.type == C2H_TERM:
            self.fes, self.fei = struct.unpack_from("<HI", hdr, 8)
        elif self.type == RESP:
            self.cqe = Cqe(hdr[8:24])
        elif self.type == C2H_DATA:
            self.cccid, _, self.datao, self.datal = struct.unpack_from("<HHII", hdr, 8)
        elif self.type == R2T:
            self.cccid, self.ttag, self.r2to, self.r2tl = struct.unpack_from("<HHII", hdr, 8)

    def __repr__(self):
        what = {k: v for k, v in vars(self).items() if k not in ("hdr", "data", "type")}
        return f"{NAMES[self.type]}({what}, {len(self.data)} bytes of data)"


class Cqe:
    """A completion. status is SCT * 100h + SC; dnr, more, crd beside it."""

    def __init__(self, raw):
        self.raw = raw
        self.dw0, self.dw1, self.sqhd, self.sqid, self.cid, st = struct.unpack("<IIHHHH", raw)
        self.phase, self.status = st & 1, st >> 1 & 0x7FF
        self.crd, self.more, self.dnr = st >> 12 & 3, bool(st >> 14 & 1), bool(st >> 15)
        self.value = self.dw0 | self.dw1 << 32

    def __repr__(self):
        return (f"Cqe(cid {self.cid} status {self.status:03x}h dnr {int(self.dnr)} "
                f"dw0 {self.dw0:#x} sqhd {self.sqhd})")


def need(cond, text, *args):
    if not cond:
        raise ProtocolError(text % args)


def check_header(head, *, hdgst, ddgst, hpda):
    """Judges the first 8 bytes of a PDU from a controller under the agreed terms."""
    ptype, flags, hlen, pdo, plen = struct.unpack("<BBBBI", head)
    need(ptype in FROM_CTRL, "type %02xh is not one that a controller sends", ptype)
    name = NAMES[ptype]
    need(hlen == HLEN[ptype], "%s with HLEN %d", name, hlen)
    if ptype in (ICRESP, C2H_TERM):
        need(flags == 0, "%s with flags %02xh", name, flags)
        low, high = (128, 128) if ptype == ICRESP else (24, 152)
        need(low <= plen <= high, "%s with PLEN %d", name, plen)
        return
    need(bool(flags & F_HDGST) == hdgst, "%s: HDGSTF is %d", name, flags & F_HDGST)
    if ptype == C2H_DATA:
        need(bool(flags & F_DDGST) == ddgst, "C2HData: DDGSTF is %d", bool(flags & F_DDGST))
        need(not flags & ~15, "C2HData with flags %02xh", flags)
        need(not flags & F_SUCCESS or flags & F_LAST, "C2HData: SUCCESS without LAST_PDU")
        unit = (hpda + 1) * 4
        want = -(-(24 + (4 if hdgst else 0)) // unit) * unit
        need(pdo == want, "C2HData: PDO is %d, not %d (HPDA %d)", pdo, want, hpda)
        need(plen > pdo + (4 if ddgst else 0), "C2HData with PLEN %d", plen)
    else:
        need(not flags & ~F_HDGST, "%s with flags %02xh", name, flags)
        need(pdo == 0, "%s with PDO %d", name, pdo)
        need(plen == hlen + (4 if hdgst else 0), "%s with PLEN %d", name, plen)


def parse(raw, *, hdgst, ddgst):
    """A whole PDU whose first 8 bytes passed check_header(): digests, padding, lengths."""
    ptype, flags, hlen, pdo, _ = struct.unpack_from("<BBBBI", raw)
    hdr, data = raw[:hlen], b""
    if flags & F_HDGST:
        need(raw[hlen:hlen + 4] == digest(hdr), "%s: header digest is wrong", NAMES[ptype])
    if ptype == C2H_TERM:
        data = raw[hlen:]
    elif ptype == C2H_DATA:
        data = raw[pdo:len(raw) - (4 if flags & F_DDGST else 0)]
        need(not any(raw[hlen + (4 if flags & F_HDGST else 0):pdo]), "C2HData: padding is not 0")
        if flags & F_DDGST:
            need(raw[-4:] == digest(data), "C2HData: data digest is wrong")
    got = Pdu(hdr, data)
    if ptype == C2H_DATA:
        need(got.datal == len(data), "C2HData: DATAL %d, but %d bytes", got.datal, len(data))
        need(got.datao % 4 == 0, "C2HData: DATAO %d is no dword multiple", got.datao)
    if ptype == RESP:
        need(got.cqe.phase == 0, "CapsuleResp: phase bit is set")
    if ptype == R2T:
        need(got.r2tl > 0 and got.r2to % 4 == 0, "R2T: offset %d length %d", got.r2to, got.r2tl)
    return got
