/* The encrypt stage. See stage_crypt.h.
 *
 * Happy path: crypt_out() walks the part block by block, in runs that are contiguous on the volume;
 * a block's number is the tweak. crypt_in() does the same backwards into VM memory.
 *
 * libcrypto copies the key into its contexts, so it allocates from hidden memory, from the first
 * key on. If it has allocated before that, which nothing here makes it do, the process gives up
 * core dumps.
 *
 * What can fail: making the contexts. Later, libcrypto has no reason to refuse whole blocks; if it
 * does, the command ends with an internal error, and nothing leaves that was not encrypted.
 */
#include "initiator/stage_crypt.h"

#include "common/log.h"
#include "initiator/crypt_key.h"
#include "initiator/hidden.h"
#include "initiator/io.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

struct lane { /* a reactor's */
	EVP_CIPHER_CTX *enc, *dec;
};

struct crypt {
	struct stage stage;
	unsigned nr_lanes;
	struct lane lanes[];
};

enum { TWEAK_BYTES = 16 };

static bool
unit(EVP_CIPHER_CTX *ctx, uint8_t *dst, const uint8_t *src, size_t n, uint64_t tweak)
{
	uint8_t iv[TWEAK_BYTES] = { 0 };
	le64 number = le64_put(tweak);
	int len = 0;

	memcpy(iv, &number, sizeof(number));
	return EVP_CipherInit_ex(ctx, NULL, NULL, NULL, iv, -1) == 1 &&
	       EVP_CipherUpdate(ctx, dst, &len, src, (int)n) == 1 && (size_t)len == n;
}

static struct crypt *
crypt_of(struct stage *s)
{
	return container_of(s, struct crypt, stage);
}

/* ---- parts ---- */

static uint32_t
crypt_room(const struct stage *s, const struct staged *t)
{
	(void)s;
	switch (t->part->io->op) {
	case nvme_cmd_read:
	case nvme_cmd_write:
	case nvme_cmd_compare:
	case nvme_cmd_write_zeroes:
		return t->len;
	default:
		return 0;
	}
}

static bool
encrypt_block(EVP_CIPHER_CTX *ctx, struct sg_walk *w, uint8_t *dst, size_t n, uint64_t lba)
{
	const uint8_t *src = sg_walk_piece(w, n);

	if (!src) {
		sg_walk_get(w, dst, n);
		src = dst;
	}
	return unit(ctx, dst, src, n, lba);
}

/* What is scattered must not stay in staging memory as plain text. */
static bool
decrypt_block(EVP_CIPHER_CTX *ctx, struct sg_walk *w, uint8_t *src, size_t n, uint64_t lba)
{
	uint8_t *dst = sg_walk_piece(w, n);

	if (dst)
		return unit(ctx, dst, src, n, lba);
	if (!unit(ctx, src, src, n, lba))
		return false;
	sg_walk_put(w, src, n);
	OPENSSL_cleanse(src, n);
	return true;
}

/* Zeroes that a VM sends none of are written as any other data. */
static void
become_write(struct part *p)
{
	p->sqe.opcode = nvme_cmd_write;
	p->sqe.cdw12 = le32_put(le32_get(p->sqe.cdw12) & ~((uint32_t)NVME_IO_DEAC << 16));
}

static uint16_t
crypt_out(struct stage *s, struct reactor *r, struct staged *t)
{
	EVP_CIPHER_CTX *ctx = crypt_of(s)->lanes[r->id].enc;
	unsigned shift = t->part->io->vol->lba_shift;
	uint32_t block = 1u << shift, run;
	struct sg_walk w = sg_walk_start(t);
	bool good = true;

	if (t->part->to_host)
		return 0;
	if (!t->sg) {
		memset(t->buf.p, 0, t->len);
		become_write(t->part);
	}
	for (uint32_t at = 0; at < t->len && good; at += run) {
		uint64_t lba = staged_run(t, at, &run) >> shift;

		for (uint32_t i = 0; i < run && good; i += block, lba++) {
			uint8_t *p = t->buf.p + at + i;

			good = t->sg ? encrypt_block(ctx, &w, p, block, lba)
			             : unit(ctx, p, p, block, lba);
		}
	}
	return good ? 0 : NVME_SC_INTERNAL;
}

static uint16_t
crypt_in(struct stage *s, struct reactor *r, struct staged *t, uint32_t dw0)
{
	EVP_CIPHER_CTX *ctx = crypt_of(s)->lanes[r->id].dec;
	unsigned shift = t->part->io->vol->lba_shift;
	uint32_t block = 1u << shift, run;
	struct sg_walk w = sg_walk_start(t);
	bool good = true;

	(void)dw0;
	if (!t->part->to_host)
		return 0;
	for (uint32_t at = 0; at < t->len && good; at += run) {
		uint64_t lba = staged_run(t, at, &run) >> shift;

		for (uint32_t i = 0; i < run && good; i += block, lba++)
			good = decrypt_block(ctx, &w, t->buf.p + at + i, block, lba);
	}
	return good ? 0 : NVME_NO_RETRY(NVME_SC_INTERNAL);
}

static bool
crypt_allows(const struct stage *s, uint8_t opcode)
{
	switch (opcode) {
	case nvme_cmd_read:
	case nvme_cmd_write:
	case nvme_cmd_compare:
	case nvme_cmd_write_zeroes:
	case nvme_cmd_flush:
		return true;
	case nvme_cmd_dsm:
		return s->cfg.crypt.discard;
	default:
		return false;
	}
}

/* Zeroes need nothing of the members but Write. */
static uint16_t
crypt_oncs(const struct stage *s, uint16_t oncs)
{
	if (!s->cfg.crypt.discard)
		oncs &= (uint16_t)~NVME_CTRL_ONCS_DSM;
	return oncs | NVME_CTRL_ONCS_WRITE_ZEROES;
}

/* ---- making one ---- */

static void
crypt_free(struct stage *s)
{
	struct crypt *c = crypt_of(s);

	for (unsigned i = 0; i < c->nr_lanes; i++) {
		EVP_CIPHER_CTX_free(c->lanes[i].enc); /* wipes the key */
		EVP_CIPHER_CTX_free(c->lanes[i].dec);
	}
	free(c);
}

static const struct stage_ops crypt_ops = {
	.room = crypt_room,
	.out = crypt_out,
	.in = crypt_in,
	.allows = crypt_allows,
	.oncs = crypt_oncs,
	.free = crypt_free,
};

static void *
crypto_malloc(size_t n, const char *file, int line)
{
	(void)file;
	(void)line;
	return hidden_malloc(n);
}

static void *
crypto_realloc(void *p, size_t n, const char *file, int line)
{
	(void)file;
	(void)line;
	return hidden_realloc(p, n);
}

static void
crypto_free(void *p, const char *file, int line)
{
	(void)file;
	(void)line;
	hidden_free(p);
}

static void
hide_contexts(void)
{
	static bool done;

	if (done)
		return;
	done = true;
	if (CRYPTO_set_mem_functions(crypto_malloc, crypto_realloc, crypto_free) == 1)
		return;
	log_warn("libcrypto is in use already and may keep keys anywhere: there will be no core "
	         "dumps");
	(void)prctl(PR_SET_DUMPABLE, 0);
}

static const EVP_CIPHER *
cipher_of(const struct stage_config *cfg)
{
	return cfg->crypt.key->len == 32 ? EVP_aes_128_xts() : EVP_aes_256_xts();
}

const char *
crypt_name(const struct stage_config *cfg)
{
	return cfg->crypt.key->len == 32 ? "aes-128-xts" : "aes-256-xts";
}

static EVP_CIPHER_CTX *
context(const struct stage_config *cfg, bool encrypt)
{
	EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();

	if (ctx &&
	    EVP_CipherInit_ex(ctx, cipher_of(cfg), NULL, cfg->crypt.key->bytes, NULL, encrypt) == 1)
		return ctx;
	EVP_CIPHER_CTX_free(ctx);
	return NULL;
}

static int
lanes_init(struct crypt *c, const struct stage_config *cfg, unsigned nr, struct err *err)
{
	for (; c->nr_lanes < nr; c->nr_lanes++) {
		struct lane *l = &c->lanes[c->nr_lanes];

		l->enc = context(cfg, true);
		l->dec = l->enc ? context(cfg, false) : NULL;
		if (!l->dec) {
			EVP_CIPHER_CTX_free(l->enc);
			return err_set(err, -EIO, "libcrypto does not make a context of %s",
			               crypt_name(cfg));
		}
	}
	return 0;
}

int
crypt_new(const struct stage_config *cfg, unsigned nr_reactors, uint32_t max_part,
          struct stage **ret, struct err *err)
{
	struct crypt *c = calloc(1, sizeof(*c) + nr_reactors * sizeof(*c->lanes));
	int res;

	if (!c)
		return err_set(err, -ENOMEM, "no memory");
	hide_contexts();
	res = stage_init(&c->stage, &crypt_ops, nr_reactors, cfg, max_part, err);
	if (!res)
		res = lanes_init(c, cfg, nr_reactors, err);
	if (res)
		stage_free(&c->stage);
	else
		*ret = &c->stage;
	return res;
}

void
crypt_unit(struct stage *s, bool encrypt, uint8_t *data, size_t n, uint64_t tweak)
{
	const struct lane *l = &crypt_of(s)->lanes[0];

	if (!unit(encrypt ? l->enc : l->dec, data, data, n, tweak))
		memset(data, 0, n);
}
