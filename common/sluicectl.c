/* sluicectl: looks into a running daemon and steers it.
 *
 * Happy path: 1. cli_parse() takes the options, 2. the words that follow find a row of the verb
 * table, 3. the rest of them become the row's parameters, 4. the daemon is called, 5. its result is
 * shown. What can fail: what was typed (exit status 2), or the daemon is not there or refuses (1).
 */
#include "common/cli.h"
#include "common/conf_write.h"
#include "common/ctl_client.h"
#include "common/ctl_path.h"
#include "common/nearest.h"
#include "common/show.h"
#include "common/units.h"
#include "common/wire.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_REFUSED = 1, EXIT_USAGE = 2 };
enum { OPERANDS_MAX = 12, WORDS_MAX = 64, PARAM_MAX = 32 };

/* What a verb takes besides its operands. */
enum {
	TAKES_NSID = 1,    /* --nsid */
	TAKES_WATCH = 2,   /* --watch: it only looks */
	GIVES_JSON = 4,    /* its result is a file, not a report */
	GIVES_EVENTS = 8,  /* it listens until it is interrupted */
	TAKES_QUEUES = 16, /* --queues, --depth */
	TAKES_FORCE = 32,  /* --force */
	TAKES_SAVE = 64,   /* --save */
};

struct verb {
	const char *words;      /* "ns add"; the method's name has "." for the blank */
	const char *operands;   /* as shown: "SUBSYSTEM SPEC"; the last may be "[X]" */
	/* their names, in order: "nqn device"; "nsid#" is a number, "disks@" a list, "limits="
	   what the words KEY=VALUE from there on say */
	const char *params;
	unsigned takes;
	const char *help;
};

static const struct verb verbs[] = {
	{"status", "", "", TAKES_WATCH, "what runs, since when, and how much of it"},
	{"subsystems", "", "", TAKES_WATCH, "subsystems and who may use them"},
	{"namespaces", "", "", TAKES_WATCH, "namespaces, their size and backend"},
	{"ports", "", "", TAKES_WATCH, "where the target listens"},
	{"hosts", "", "", TAKES_WATCH, "hosts that are known"},
	{"controllers", "", "", TAKES_WATCH, "controllers that hosts have open"},
	{"connections", "", "", TAKES_WATCH, "TCP connections and their queues"},
	{"stats", "", "", TAKES_WATCH, "counters and latencies"},
	{"events", "", "", GIVES_EVENTS, "what happens, as it happens"},
	{"reload", "", "", 0, "read the configuration file again and apply it"},
	{"upgrade", "", "", 0, "run the program anew, under running VMs"},
	{"dump-config", "", "", GIVES_JSON, "print the running configuration"},
	{"save", "[FILE]", "path", 0, "write the running configuration to its file or FILE"},
	{"log-level", "[LEVEL]", "level", 0,
	 "show the log level, or make it error, warning, info or debug"},
	{"ns add", "SUBSYSTEM SPEC", "nqn device", TAKES_NSID, "add a namespace"},
	{"ns remove", "SUBSYSTEM NSID", "nqn nsid#", 0, "remove a namespace"},
	{"ns resize", "SUBSYSTEM NSID [SIZE]", "nqn nsid# size", 0,
	 "give a namespace SIZE, or what its file or device has"},
	{"host add", "SUBSYSTEM HOSTNQN", "nqn host", 0, "allow a host"},
	{"host remove", "SUBSYSTEM HOSTNQN", "nqn host", 0,
	 "no longer allow a host, disconnect it"},
	{"subsystem add", "NQN", "nqn", 0, "add a subsystem"},
	{"subsystem remove", "NQN", "nqn", 0, "remove a subsystem, disconnect its hosts"},
	{"port add", "ADDR:PORT", "listen", 0, "listen there, too"},
	{"port remove", "ID", "portid#", 0, "no longer listen there, disconnect who came by it"},
	{"volumes", "", "", TAKES_WATCH, "volumes of an initiator, and whether they are ready"},
	{"paths", "", "", TAKES_WATCH, "controllers of targets that it is connected to"},
	{"discoveries", "", "", TAKES_WATCH, "discovery controllers it listens to"},
	{"vms", "", "", TAKES_WATCH, "who may come, and who is there"},
	{"grants", "", "", TAKES_WATCH, "which memory targets may move now"},
	{"discover", "ADDR[:PORT]", "addr", 0, "what the discovery service there tells"},
	{"volume add", "NAME NQN/NSID,... [BLOCK]", "name members@ block", 0,
	 "add a volume over these namespaces"},
	{"volume remove", "NAME", "name", 0, "remove a volume that is no VM's disk"},
	{"volume seal", "NAME", "name", TAKES_FORCE,
	 "write the record by which an encrypted volume knows its key"},
	{"vm add", "NAME VOLUME,... [UID]", "name disks@ uid#", 0,
	 "give clients of that user these disks"},
	{"vm remove", "NAME", "name", 0, "remove a VM, disconnect its clients"},
	{"qos show", "[NAME]", "name", TAKES_WATCH, "limits of volumes, VMs, namespaces, hosts, and what they held"},
	{"qos set", "NAME LIMIT=RATE...", "name limits=", TAKES_SAVE,
	 "limit a volume, a VM, NQN/NSID or NQN/HOSTNQN"},
	{"qos clear", "NAME", "name", TAKES_SAVE, "take its limits away"},
	{"qos refund", "NAME AMOUNT", "name amount", 0,
	 "let it do so much more: 500iops, 1M, 4096bytes"},
	{"capacity show", "", "", TAKES_WATCH, "what an initiator may do in all, and what is left"},
	{"capacity set", "LIMIT=RATE...", "limits=", TAKES_SAVE,
	 "change that: iops=RATE, bandwidth=RATE, or none"},
	{"ublk add", "VOLUME", "volume", TAKES_QUEUES,
	 "make a volume a block device, and print its path"},
	{"ublk del", "DEVICE", "name", TAKES_FORCE, "delete such a device"},
	{"ublk list", "", "", TAKES_WATCH, "block devices of an initiator"},
};

struct options {
	const char *socket;
	bool json, watch, save;
	uint64_t interval;      /* us */
	uint32_t nsid;          /* 0: not given, as of the next two */
	uint32_t queues, depth;
	bool force;
};

#define AT(field) offsetof(struct options, field)

static const struct cli_opt opts[] = {
	{ "socket", 's', "PATH", "the daemon's control socket; otherwise $SLUICE_CTL, or\n"
	  "sluice/target.ctl or initiator.ctl below $XDG_RUNTIME_DIR\nor /run",
	  CLI_STR, AT(socket), 0, 0 },
	{ "json", 'j', NULL, "print the result as JSON", CLI_FLAG, AT(json), 0, 0 },
	{ "watch", 'w', NULL, "print it again and again", CLI_FLAG, AT(watch), 0, 0 },
	{ "interval", 'i', "DURATION", "time between two prints of --watch, otherwise 1s",
	  CLI_DURATION, AT(interval), 10000, UINT64_C(86400000000) },
	{ "nsid", 'n', "NSID", "with \"ns add\": its namespace id, otherwise the first free one",
	  CLI_U32, AT(nsid), 1, 0xfffffffe },
	{ "save", 'S', NULL,
	  "with \"qos set\", \"qos clear\", \"capacity set\": in the\nconfiguration file, too",
	  CLI_FLAG, AT(save), 0, 0 },
	{ "queues", 0, "N", "with \"ublk add\": of the device, otherwise one for each reactor",
	  CLI_U32, AT(queues), 1, 64 },
	{ "depth", 0, "N", "with \"ublk add\": requests of a queue at a time, otherwise 128",
	  CLI_U32, AT(depth), 1, 512 },
	{ "force", 0, NULL, "with \"ublk del\": even while it is mounted; with\n\"volume seal\": over what is no seal of this key",
	  CLI_FLAG, AT(force), 0, 0 },
	CLI_COMMON_OPTS,
};

/* The verbs as lines for --help, in a static buffer. */
static const char *
verbs_help(void)
{
	static char text[4096] = "Verbs:";
	size_t n = strlen(text);

	for (size_t i = 0; i < ARRAY_SIZE(verbs) && n < sizeof(text); i++) {
		char left[64];

		snprintf(left, sizeof(left), "%s%s%s", verbs[i].words,
		         verbs[i].operands[0] ? " " : "", verbs[i].operands);
		n += (size_t)snprintf(text + n, sizeof(text) - n, "\n  %-30s  %s", left,
		                      verbs[i].help);
	}
	return text;
}

static int
usage_err(const struct err *err)
{
	fprintf(stderr, "sluicectl: %s\n", err->text);
	return EXIT_USAGE;
}

/* How many of the words at argv are this verb's name; 0: it is another. */
static int
verb_match(const struct verb *v, int argc, char **argv)
{
	size_t n = strcspn(v->words, " ");

	if (argc < 1 || strncmp(v->words, argv[0], n) != 0 || argv[0][n])
		return 0;
	if (!v->words[n])
		return 1;
	return argc >= 2 && strcmp(v->words + n + 1, argv[1]) == 0 ? 2 : 0;
}

/* "ns" alone, or with a word that is none of its own: which ones it has. False: no verb begins
 * so. */
static bool
verb_incomplete(const char *first, struct err *err)
{
	char list[120] = "";
	size_t n = strlen(first), len = 0;

	for (size_t i = 0; i < ARRAY_SIZE(verbs) && len < sizeof(list); i++) {
		if (strncmp(verbs[i].words, first, n) == 0 && verbs[i].words[n] == ' ')
			len += (size_t)snprintf(list + len, sizeof(list) - len, "%s'%s'",
			                        len ? ", " : "", verbs[i].words);
	}
	if (len)
		err_set(err, -EINVAL, "'%s' is only half a verb, there are %s; see --help", first,
		        list);
	return len > 0;
}

/* Says what may have been meant. */
static void
verb_unknown(int argc, char **argv, struct err *err)
{
	const char *words[ARRAY_SIZE(verbs) + 1];
	char two[80];
	const char *near;
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
		words[n++] = verbs[i].words;
	words[n] = NULL;
	snprintf(two, sizeof(two), "%s %s", argv[0], argc >= 2 ? argv[1] : "");
	near = argc >= 2 ? nearest_word(two, words) : NULL;
	if (near) {
		err_set(err, -EINVAL, "unknown verb '%s', did you mean '%s'? See --help", two,
			near);
		return;
	}
	if (verb_incomplete(argv[0], err))
		return;
	near = nearest_word(argv[0], words);
	if (near)
		err_set(err, -EINVAL, "unknown verb '%s', did you mean '%s'? See --help", argv[0],
		        near);
	else
		err_set(err, -EINVAL, "unknown verb '%s'; see --help", argv[0]);
}

static const struct verb *
verb_find(int argc, char **argv, int *ret_words, struct err *err)
{
	for (size_t i = 0; i < ARRAY_SIZE(verbs); i++) {
		*ret_words = verb_match(&verbs[i], argc, argv);
		if (*ret_words)
			return &verbs[i];
	}
	if (argc == 0)
		err_set(err, -EINVAL, "a verb is missing; see --help");
	else
		verb_unknown(argc, argv, err);
	return NULL;
}

/* Copies the next word of *list, without a trailing mark, and moves behind it. False at the end. */
static bool
next_word(const char **list, char *word, size_t size)
{
	const char *s = *list + strspn(*list, " ");
	size_t n = strcspn(s, " ");

	*list = s + n;
	snprintf(word, size, "%.*s", (int)n, s);
	return n > 0;
}

/* What stands between commas. */
static void
put_list(struct conf_writer *w, const char *name, const char *value)
{
	conf_begin_array(w, name);
	for (;;) {
		size_t n = strcspn(value, ",");

		if (n > 0)
			conf_put_strn(w, NULL, value, n);
		if (!value[n])
			break;
		value += n + 1;
	}
	conf_end(w);
}

/* KEY=VALUE: a word or, with commas, a list of them. */
static int
put_setting(struct conf_writer *w, const char *word, struct err *err)
{
	const char *value = strchr(word, '=');
	char key[PARAM_MAX];

	if (!value || value == word || (size_t)(value - word) >= sizeof(key))
		return err_set(err, -EINVAL, "'%s' is not of the form LIMIT=RATE", word);
	snprintf(key, sizeof(key), "%.*s", (int)(value - word), word);
	if (strchr(++value, ','))
		put_list(w, key, value);
	else
		conf_put_str(w, key, value);
	return 0;
}

static int
put_settings(struct conf_writer *w, const char *name, int argc, char **argv, struct err *err)
{
	char key[PARAM_MAX];
	int rc = 0;

	snprintf(key, sizeof(key), "%.*s", (int)strcspn(name, "="), name);
	conf_begin_object(w, key);
	for (int i = 0; i < argc && rc == 0; i++)
		rc = put_setting(w, argv[i], err);
	if (rc == 0)
		conf_end(w);
	return rc;
}

static int
put_param(struct conf_writer *w, char *name, const char *operand, const char *value,
          struct err *err)
{
	size_t n = strlen(name);
	uint64_t v;

	if (name[n - 1] == '@') {
		name[n - 1] = '\0';
		put_list(w, name, value);
		return 0;
	}
	if (name[n - 1] != '#') {
		conf_put_str(w, name, value);
		return 0;
	}
	name[n - 1] = '\0';
	if (units_parse_u64(value, &v))
		return err_set(err, -EINVAL, "%s must be a number, not '%s'", operand, value);
	conf_put_u64(w, name, v);
	return 0;
}

/* The daemon runs elsewhere: a relative path in value is made absolute, in buf. */
static const char *
absolute(const char *name, const char *value, char *buf, size_t size)
{
	bool spec = strcmp(name, "device") == 0;
	const char *path = spec && strncmp(value, "file:", 5) == 0 ? value + 5 : value;
	char cwd[PATH_MAX];

	if (!spec && strcmp(name, "path") != 0)
		return value;
	if (spec && (strncmp(value, "ram:", 4) == 0 || strncmp(value, "null:", 5) == 0))
		return value;
	if (path[0] == '/' || !getcwd(cwd, sizeof(cwd)))
		return value;
	snprintf(buf, size, "%.*s%s/%s", (int)(path - value), value, cwd, path);
	return buf;
}

/* Puts what was typed behind the verb's name. */
static int
put_operands(struct conf_writer *w, const struct verb *v, int argc, char **argv, struct err *err)
{
	const char *operands = v->operands, *params = v->params, *value;
	char operand[PARAM_MAX], name[PARAM_MAX], buf[2 * PATH_MAX];
	int i = 0, rc = 0;

	for (; rc == 0 && next_word(&operands, operand, sizeof(operand)); i++) {
		next_word(&params, name, sizeof(name));
		if (i < argc && strchr(name, '='))
			return put_settings(w, name, argc - i, argv + i, err);
		if (i < argc) {
			value = absolute(name, argv[i], buf, sizeof(buf));
			rc = put_param(w, name, operand, value, err);
		} else if (operand[0] != '[') {
			rc = err_set(err, -EINVAL, "%s is missing: %s %s", operand, v->words,
			             v->operands);
		}
	}
	if (rc == 0 && i < argc)
		rc = err_set(err, -EINVAL, "'%s' is one word too many: %s %s", argv[i], v->words,
		             v->operands);
	return rc;
}

/* The verb's parameters as JSON text. */
static int
verb_params(const struct verb *v, int argc, char **argv, const struct options *o, char **ret,
            struct err *err)
{
	struct conf_writer w;
	int rc;

	conf_writer_init(&w, false);
	conf_begin_object(&w, NULL);
	rc = put_operands(&w, v, argc, argv, err);
	if (o->queues)
		conf_put_u64(&w, "queues", o->queues);
	if (o->depth)
		conf_put_u64(&w, "depth", o->depth);
	if (o->force)
		conf_put_bool(&w, "force", true);
	if (rc) {
		conf_writer_fini(&w);
		return rc;
	}
	if (o->nsid)
		conf_put_u64(&w, "nsid", o->nsid);
	if (o->save)
		conf_put_bool(&w, "save", true);
	conf_end(&w);
	*ret = conf_writer_take(&w);
	return *ret ? 0 : err_set(err, -ENOMEM, "out of memory");
}

static void
print_json(const struct conf_node *result, bool pretty)
{
	struct conf_writer w;
	char *text;

	conf_writer_init(&w, pretty);
	conf_put_node(&w, NULL, result);
	text = conf_writer_take(&w);
	fputs(text ? text : "", stdout);
	if (!pretty)
		putchar('\n');
	free(text);
}

static void
print_result(const struct verb *v, const struct options *o, const struct conf_node *result)
{
	if (o->json || v->takes & GIVES_JSON) {
		print_json(result, !o->watch);
		return;
	}
	if (o->watch && isatty(STDOUT_FILENO))
		fputs("\033[H\033[2J", stdout);
	if (conf_type(result) == CONF_ARRAY && conf_len(result) == 0)
		printf("none\n");
	else
		show_value(result, stdout);
	if (o->watch && !isatty(STDOUT_FILENO))
		putchar('\n');
}

/* Calls the daemon once, or again and again. */
static int
verb_run(struct ctl_client *c, const struct verb *v, const char *params, const struct options *o,
         struct err *err)
{
	const struct timespec pause = { (time_t)(o->interval / 1000000),
		                        (long)(o->interval % 1000000 * 1000) };
	char method[PARAM_MAX];
	int rc;

	snprintf(method, sizeof(method), "%s", v->words);
	for (char *s = method; *s; s++)
		*s = *s == ' ' ? '.' : *s;
	do {
		const struct conf_node *result;
		struct conf *reply;

		rc = ctl_client_call(c, method, params, &reply, &result, err);
		if (rc)
			return rc;
		print_result(v, o, result);
		conf_free(reply);
		if (fflush(stdout))
			return err_set(err, -errno, "cannot write: %s", strerror(errno));
	} while (o->watch && nanosleep(&pause, NULL) == 0);
	return 0;
}

/* One line: when, what, and a sentence. */
static void
print_event(const struct conf *event, bool json)
{
	const struct conf_node *root = conf_root(event), *params = conf_get(root, "params");
	const char *name = "", *text = "";
	time_t now = time(NULL);
	char when[32];

	if (json) {
		print_json(root, false);
		return;
	}
	conf_get_str(root, "method", CONF_FILE_MAX, &name, NULL);
	conf_get_str(params, "text", CONF_FILE_MAX, &text, NULL);
	strftime(when, sizeof(when), "%F %T", localtime(&now));
	printf("%s %s: %s\n", when, name, text);
}

/* Until the daemon ends, or we are interrupted. */
static int
events_run(struct ctl_client *c, const struct options *o, struct err *err)
{
	const struct conf_node *result;
	struct conf *doc;
	int rc = ctl_client_call(c, "subscribe", NULL, &doc, &result, err);

	while (rc == 0) {
		conf_free(doc);
		rc = ctl_client_event(c, &doc, err);
		if (rc == 0)
			print_event(doc, o->json);
		if (rc == 0 && fflush(stdout)) {
			conf_free(doc);
			rc = err_set(err, -errno, "cannot write: %s", strerror(errno));
		}
	}
	return rc;
}

/* Where the daemon should be: what was said, else where ours would be, else where root's is; a
 * target's before an initiator's. */
static const char *
socket_path(const struct options *o, char *buf, size_t size)
{
	static const char *const names[] = { "target.ctl", "initiator.ctl" };
	const char *env = getenv("SLUICE_CTL");

	if (o->socket)
		return o->socket;
	if (env && env[0])
		return env;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		if (access(ctl_default_path(buf, size, names[i]), F_OK) == 0)
			return buf;
		snprintf(buf, size, "/run/sluice/%s", names[i]);
		if (access(buf, F_OK) == 0)
			return buf;
	}
	snprintf(buf, size, "/run/sluice/target.ctl");
	return buf;
}

/* Options that the verb has no use for. */
static int
check_options(const struct verb *v, const struct options *o, struct err *err)
{
	if (o->nsid && !(v->takes & TAKES_NSID))
		return err_set(err, -EINVAL, "--nsid goes with \"ns add\" only");
	if (o->save && !(v->takes & TAKES_SAVE))
		return err_set(err, -EINVAL,
		               "--save goes with \"qos set\", \"qos clear\" and \"capacity set\" "
		               "only");
	if ((o->queues || o->depth) && !(v->takes & TAKES_QUEUES))
		return err_set(err, -EINVAL, "--queues and --depth go with \"ublk add\" only");
	if (o->force && !(v->takes & TAKES_FORCE))
		return err_set(err, -EINVAL, "--force goes with \"ublk del\" and \"volume seal\" only");
	if (o->watch && !(v->takes & TAKES_WATCH))
		return err_set(err, -EINVAL, "--watch does not go with \"%s\"", v->words);
	return 0;
}

int
main(int argc, char **argv)
{
	const struct cli_program program = {
		.name = "sluicectl",
		.synopsis = "[OPTION]... VERB [OPERAND]...",
		.summary = "Looks into a running Sluice daemon and steers it",
		.opts = opts,
		.nopts = ARRAY_SIZE(opts),
		.max_operands = OPERANDS_MAX,
		.more = verbs_help(),
	};
	struct options o = { .interval = 1000000 };
	struct err err = { 0 };
	struct ctl_client client;
	const struct verb *v;
	char path[PATH_MAX], *params = NULL;
	int n, words, rc;

	rc = cli_parse(&program, argc, argv, &o, &n, &err);
	if (rc)
		return rc == CLI_DONE ? 0 : usage_err(&err);
	v = verb_find(n, argv + 1, &words, &err);
	if (!v || check_options(v, &o, &err) ||
	    verb_params(v, n - words, argv + 1 + words, &o, &params, &err))
		return usage_err(&err);
	rc = ctl_client_open(&client, socket_path(&o, path, sizeof(path)), &err);
	if (rc == 0) {
		rc = v->takes & GIVES_EVENTS ? events_run(&client, &o, &err)
		                             : verb_run(&client, v, params, &o, &err);
		ctl_client_close(&client);
	}
	free(params);
	if (rc)
		fprintf(stderr, "sluicectl: %s\n", err.text);
	return rc ? EXIT_REFUSED : 0;
}
