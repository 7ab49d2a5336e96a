EXTRA_DIST += \
	%D%/compressed.json \
	%D%/encrypted.json \
	%D%/initiator-two-targets.json \
	%D%/qos.json \
	%D%/quickstart \
	%D%/quickstart.py \
	%D%/shm-hello.c \
	%D%/sluice-initiator.service \
	%D%/sluice-target.service \
	%D%/target-one-disk.json \
	%D%/target-two-subsystems.json \
	%D%/vm \
	%D%/vm-libvirt.xml

# The example of libsluice(3), built as a user would: with <sluice.h>.
check_PROGRAMS += %D%/shm-hello
%C%_shm_hello_SOURCES = %D%/shm-hello.c
%C%_shm_hello_CPPFLAGS = -I$(top_srcdir)/initiator/client
%C%_shm_hello_LDADD = initiator/client/libsluice.a
