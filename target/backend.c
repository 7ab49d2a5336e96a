/* What a SPEC says: ram:SIZE, null:SIZE, file:PATH or PATH, and the options behind commas. */
#include "target/backend.h"

#include "common/units.h"

#include <errno.h>
#include <stdio.h>

static const struct backend_ops *const all[] = { &backend_file, &backend_ram, &backend_null };

static int
parse_direct(const char *word, struct backend_spec *ret)
{
	if (strcmp(word, "on") == 0)
		ret->direct = DIRECT_ON;
	else if (strcmp(word, "off") == 0)
		ret->direct = DIRECT_OFF;
	else if (strcmp(word, "auto") == 0)
		ret->direct = DIRECT_AUTO;
	else
		return -EINVAL;
	return 0;
}

static int
parse_option(const char *option, struct backend_spec *ret, struct err *err)
{
	uint64_t n;

	if (strcmp(option, "ro") == 0) {
		ret->readonly = true;
		return 0;
	}
	if (strncmp(option, "size=", 5) == 0 && units_parse_size(option + 5, &ret->size) == 0 &&
	    ret->size > 0)
		return 0;
	if (strncmp(option, "bs=", 3) == 0 && units_parse_size(option + 3, &n) == 0 &&
	    (n == 512 || n == 4096)) {
		ret->block = (uint32_t)n;
		return 0;
	}
	if (strncmp(option, "direct=", 7) == 0 && parse_direct(option + 7, ret) == 0)
		return 0;
	return err_set(err, -EINVAL,
	               "'%s' is none of size=SIZE, bs=512, bs=4096, ro, direct=on|off|auto", option);
}

/* "ram:1G": the scheme's table, and text moved behind the colon. A path may hold colons. */
static const struct backend_ops *
take_scheme(char **text)
{
	size_t i;

	for (i = 0; i < ARRAY_SIZE(all); i++) {
		size_t n = strlen(all[i]->name);

		if (strncmp(*text, all[i]->name, n) == 0 && (*text)[n] == ':') {
			*text += n + 1;
			return all[i];
		}
	}
	return &backend_file;
}

static int
take_what(const struct backend_ops *ops, char *what, struct backend_spec *ret, struct err *err)
{
	if (ops == &backend_file) {
		if (!*what)
			return err_set(err, -EINVAL, "the path is empty");
		ret->path = what;
		return 0;
	}
	if (units_parse_size(what, &ret->size) < 0 || ret->size == 0)
		return err_set(err, -EINVAL, "'%s' is not a size: %s:SIZE, as in %s:1G", what, ops->name,
		               ops->name);
	return 0;
}

int
backend_spec_parse(const char *text, char *buf, size_t n, const struct backend_ops **ret_ops,
                   struct backend_spec *ret, struct err *err)
{
	struct backend_spec spec = { 0 };
	const struct backend_ops *ops;
	char *what = buf, *option;
	int res;

	if ((size_t)snprintf(buf, n, "%s", text) >= n)
		return err_set(err, -ENAMETOOLONG, "longer than %zu bytes", n - 1);
	ops = take_scheme(&what);
	option = strchr(what, ',');
	if (option)
		*option++ = '\0';
	res = take_what(ops, what, &spec, err);
	while (res == 0 && option) {
		char *next = strchr(option, ',');

		if (next)
			*next++ = '\0';
		res = parse_option(option, &spec, err);
		option = next;
	}
	if (res < 0)
		return err_prefix(err, res, "%s", text);
	spec.create = ops == &backend_file && spec.size > 0;
	*ret = spec;
	*ret_ops = ops;
	return 0;
}
