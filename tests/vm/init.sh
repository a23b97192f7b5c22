#!/bin/busybox sh
# The first program of a kernel test's virtual machine: runs what /plan lists, a line each: name, seconds allowed, command with its arguments.
# The console gets their output, the second serial line a line for each that has ended (name, exit status, seconds), and "end" at last.

/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sys /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mount -t bpf bpf /sys/fs/bpf
/bin/busybox mount -t tracefs tracing /sys/kernel/tracing
/bin/busybox --install -s /bin
chmod 1777 /tmp
export PATH=/tools:/bin HOME=/tmp

seconds() {
	read -r uptime _ </proc/uptime
	echo "${uptime%.*}"
}

echo "Linux $(uname -r), $(nproc) CPUs, $(seconds) s after its start"
while read -r name limit command; do
	echo "== $name"
	start=$(seconds)
	# Arguments have no spaces: whoever writes the plan sees to it.
	# shellcheck disable=SC2086
	timeout -s KILL "$limit" $command </dev/null
	status=$?
	echo "$name $status $(($(seconds) - start))" >/dev/ttyS1
done </plan
echo end >/dev/ttyS1
poweroff -f
