# Everything but main.c, so that unit tests can link it.
noinst_LIBRARIES += %D%/libtarget.a

%C%_libtarget_a_SOURCES = \
	%D%/admin.c \
	%D%/admin.h \
	%D%/admin_abort.c \
	%D%/admin_event.c \
	%D%/admin_feat.c \
	%D%/admin_format.c \
	%D%/admin_identify.c \
	%D%/admin_log.c \
	%D%/admin_ns.c \
	%D%/admin_table.h \
	%D%/backend.c \
	%D%/backend.h \
	%D%/bad.c \
	%D%/bad.h \
	%D%/backend_file.c \
	%D%/backend_null.c \
	%D%/backend_ram.c \
	%D%/cmd.c \
	%D%/cmd.h \
	%D%/config.c \
	%D%/config.h \
	%D%/config_apply.c \
	%D%/config_dump.c \
	%D%/config_plain.h \
	%D%/config_plan.c \
	%D%/config_plan.h \
	%D%/config_plan_ports.c \
	%D%/config_read.c \
	%D%/config_subsys.c \
	%D%/conn.c \
	%D%/conn.h \
	%D%/connect.c \
	%D%/connect.h \
	%D%/ctrl.c \
	%D%/ctrl.h \
	%D%/ctrl_state.c \
	%D%/ctrl_state.h \
	%D%/discovery.c \
	%D%/discovery.h \
	%D%/fabrics.c \
	%D%/fabrics.h \
	%D%/features.c \
	%D%/features.h \
	%D%/gate.c \
	%D%/identify.c \
	%D%/identify.h \
	%D%/ids.c \
	%D%/ids.h \
	%D%/io.c \
	%D%/io.h \
	%D%/io_fused.c \
	%D%/io_ranges.c \
	%D%/io_zip.c \
	%D%/keepalive.c \
	%D%/keepalive.h \
	%D%/limit.c \
	%D%/limit.h \
	%D%/limit_model.c \
	%D%/listener.c \
	%D%/listener.h \
	%D%/logpage.c \
	%D%/logpage.h \
	%D%/model.h \
	%D%/ns.c \
	%D%/ns.h \
	%D%/ns_job.c \
	%D%/ns_job.h \
	%D%/ns_store.c \
	%D%/ns_store.h \
	%D%/port.c \
	%D%/reactor.c \
	%D%/reactor.h \
	%D%/subsys.c \
	%D%/subsys.h \
	%D%/target.h \
	%D%/verbs.c \
	%D%/verbs.h \
	%D%/verbs_change.c \
	%D%/verbs_limit.c \
	%D%/verbs_list.c \
	%D%/verbs_table.h

sbin_PROGRAMS += %D%/sluice-target
%C%_sluice_target_SOURCES = %D%/main.c
%C%_sluice_target_LDADD = %D%/libtarget.a $(common_libs)
