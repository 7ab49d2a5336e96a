/* The stage of a volume: "stages" and "staging".
 *
 * Happy path: the one entry of the list says what it is by its first word, and the rest of its keys
 * are that stage's. Keys for encryption are read here, so that what is wrong with one is told with
 * its place, and "--check" finds it.
 *
 * What can fail: what a human wrote, a key that cannot be had; and two stages on one volume, with
 * the reason.
 */
#include "initiator/config.h"

#include "common/zframe.h"
#include "initiator/crypt_key.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { STAGING_MIN = 64 << 10, NAME_MAX_BYTES = 255, PATH_MAX_BYTES = 1023 };

#define STAGING_MAX (UINT64_C(1) << 32)

/* ---- encrypt ---- */

static int
key_from_file(const char *path, const char *dir, struct crypt_key **ret, struct err *err)
{
	char *full = NULL;
	int res;

	if (!dir || path[0] == '/')
		return crypt_key_file(path, ret, err);
	if (asprintf(&full, "%s/%s", dir, path) < 0)
		return err_set(err, -ENOMEM, "no memory");
	res = crypt_key_file(full, ret, err);
	free(full);
	return res;
}

/* The sentence gets the place of the key's name, not of the key. */
static int
at_place(const struct conf_node *n, int res, const struct err *why, struct err *err)
{
	return res ? conf_err(n, err, res, "%s", why->text) : 0;
}

static int
read_key(struct stage_config *cfg, const struct conf_node *n, const char *dir, struct err *err)
{
	static const char *const from[] = { "key_file", "key_credential", "key_keyring" };
	const struct conf_node *of = NULL;
	unsigned which = 0;
	struct err why = { 0 };
	const char *text = "";
	int res;

	for (unsigned i = 0; i < ARRAY_SIZE(from); i++) {
		const struct conf_node *e = conf_get(n, from[i]);

		if (e && of)
			return conf_err(e, err, -EINVAL, "the key is \"%s\" already", from[which]);
		if (e) {
			of = e;
			which = i;
		}
	}
	if (!of)
		return conf_err(n, err, -EINVAL,
		                "has no key: \"key_file\", \"key_credential\" or \"key_keyring\"");
	res = conf_as_str(of, which == 0 ? PATH_MAX_BYTES : NAME_MAX_BYTES, &text, err);
	if (res)
		return res;
	if (which == 0)
		res = key_from_file(text, dir, &cfg->crypt.key, &why);
	else if (which == 1)
		res = crypt_key_credential(text, &cfg->crypt.key, &why);
	else
		res = crypt_key_keyring(text, &cfg->crypt.key, &why);
	return at_place(of, res, &why, err);
}

static int
read_encrypt(struct stage_config *cfg, const struct conf_node *n, const char *dir, struct err *err)
{
	static const char *const known[] = { "encrypt",     "key_file", "key_credential",
		                             "key_keyring", "discard",  "seal", NULL };
	static const char *const ciphers[] = { "aes-xts", NULL };
	unsigned cipher = 0;
	int ret = conf_check_keys(n, known, err);

	cfg->kind = STAGE_ENCRYPT;
	if (ret >= 0)
		ret = conf_get_word(n, "encrypt", ciphers, &cipher, err);
	if (ret >= 0)
		ret = conf_get_bool(n, "discard", &cfg->crypt.discard, err);
	if (ret >= 0)
		ret = conf_get_bool(n, "seal", &cfg->crypt.seal, err);
	return ret < 0 ? ret : read_key(cfg, n, dir, err);
}

/* ---- compress ---- */

static int
read_compress(struct stage_config *cfg, const struct conf_node *n, struct err *err)
{
	static const char *const known[] = { "compress", "level", "otherwise", NULL };
	static const char *const codecs[] = { "zstd", NULL };
	static const char *const otherwise[] = { "refuse", "raw", NULL };
	unsigned codec = 0, raw = 0;
	int64_t level = 1;
	int ret = conf_check_keys(n, known, err);

	cfg->kind = STAGE_COMPRESS;
	if (ret >= 0)
		ret = conf_get_word(n, "compress", codecs, &codec, err);
	if (ret >= 0)
		ret = conf_get_i64(n, "level", ZFRAME_LEVEL_MIN, ZFRAME_LEVEL_MAX, &level, err);
	if (ret >= 0)
		ret = conf_get_word(n, "otherwise", otherwise, &raw, err);
	cfg->zstd.level = (int)level;
	cfg->zstd.raw = raw == 1;
	return ret < 0 ? ret : 0;
}

/* ---- any ---- */

static int
read_one(struct stage_config *cfg, const struct conf_node *n, const char *dir, struct err *err)
{
	int ret = conf_as_object(n, err);

	if (ret)
		return ret;
	if (conf_get(n, "encrypt"))
		return read_encrypt(cfg, n, dir, err);
	if (conf_get(n, "compress"))
		return read_compress(cfg, n, err);
	return conf_err(n, err, -EINVAL, "is no stage: {\"encrypt\": \"aes-xts\", ...} is one, {\"compress\": \"zstd\"} another");
}

int
config_read_stage(const struct conf_node *volume, const char *dir, struct stage_config *cfg,
                  struct err *err)
{
	const struct conf_node *list = NULL;
	int ret = conf_get_array(volume, "stages", &list, err);

	cfg->staging = STAGING_DEFAULT;
	if (ret >= 0)
		ret = conf_get_size(volume, "staging", STAGING_MIN, STAGING_MAX, &cfg->staging,
		                    err);
	if (ret < 0)
		return ret;
	if (conf_len(list) == 0) {
		if (conf_get(volume, "staging"))
			return conf_err(conf_get(volume, "staging"), err, -EINVAL,
			                "is for a volume that has \"stages\" only");
		cfg->staging = 0;
		return 0;
	}
	if (conf_len(list) > 1)
		return conf_err(
			list, err, -EINVAL,
			"a volume has one stage: what is encrypted does not compress, and a "
			"target that could decrypt it would hold the key");
	return read_one(cfg, conf_first(list), dir, err);
}
