/* Writes limits back into the configuration file, and nothing else.
 *
 * Happy path: the file is read, its values are written out again in their order, the "qos" of one
 * entry, or "capacity", replaced, and the whole is put in place of the file. What can fail: the
 * file is not what it was (no JSON, no such entry), or cannot be written; it is as before then.
 */
#include "initiator/config.h"

#include "common/file.h"

#include <errno.h>
#include <stdlib.h>

struct change {
	const char *section; /* key of the root */
	const char *name;    /* of its entry */
	const struct qos_config *qos;
	bool done;
};

static bool
is_named(const struct conf_node *entry, const char *name)
{
	const char *text = "";

	return conf_get_str(entry, "name", 63, &text, NULL) > 0 && !strcmp(text, name);
}

static void
put_entry(struct conf_writer *w, const struct conf_node *entry, struct change *c)
{
	const struct conf_node *e;

	conf_begin_object(w, NULL);
	conf_for_each(entry, e) if (strcmp(conf_key(e), "qos") != 0)
		conf_put_node(w, conf_key(e), e);
	if (qos_limited(c->qos) || c->qos->burst_ms != QOS_BURST_MS)
		qos_put(w, "qos", c->qos);
	conf_end(w);
	c->done = true;
}

static void
put_list(struct conf_writer *w, const struct conf_node *list, struct change *c)
{
	const struct conf_node *e;

	conf_begin_array(w, conf_key(list));
	conf_for_each(list, e) if (is_named(e, c->name)) put_entry(w, e, c);
	else conf_put_node(w, NULL, e);
	conf_end(w);
}

/* The file's values again, as put_root() has them. */
static int
save(const char *path,
     void (*put_root)(struct conf_writer *, const struct conf_node *, struct change *),
     struct change *c, struct err *err)
{
	struct conf *doc = conf_load(path, err);
	struct conf_writer w;
	char *text;
	int ret;

	if (!doc)
		return err && err->code ? err->code : -EINVAL;
	conf_writer_init(&w, true);
	conf_begin_object(&w, NULL);
	put_root(&w, conf_root(doc), c);
	conf_end(&w);
	conf_free(doc);
	text = conf_writer_take(&w);
	if (!text)
		ret = err_set(err, -ENOMEM, "no memory");
	else if (!c->done)
		ret = err_set(err, -ENOENT, "'%s' is not among the \"%s\" of %s, it was not saved",
		              c->name, c->section, path);
	else
		ret = file_replace(path, text, err);
	free(text);
	return ret;
}

static void
put_with_entry(struct conf_writer *w, const struct conf_node *root, struct change *c)
{
	const struct conf_node *e;

	conf_for_each(root, e)
	{
		if (!strcmp(conf_key(e), c->section) && conf_type(e) == CONF_ARRAY)
			put_list(w, e, c);
		else
			conf_put_node(w, conf_key(e), e);
	}
}

static void
put_with_capacity(struct conf_writer *w, const struct conf_node *root, struct change *c)
{
	const struct conf_node *e;

	conf_for_each(root, e) if (strcmp(conf_key(e), c->section) != 0)
		conf_put_node(w, conf_key(e), e);
	if (qos_limited(c->qos))
		qos_put(w, c->section, c->qos);
	c->done = true;
}

int
config_save_qos(const char *path, bool volume, const char *name, const struct qos_config *q,
                struct err *err)
{
	struct change c = { .section = volume ? "volumes" : "vms", .name = name, .qos = q };

	return save(path, put_with_entry, &c, err);
}

int
config_save_capacity(const char *path, const struct qos_config *q, struct err *err)
{
	struct change c = { .section = "capacity", .qos = q };

	return save(path, put_with_capacity, &c, err);
}
