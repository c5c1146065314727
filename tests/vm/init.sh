#!/bin/busybox sh
# First process of the emulated machine, run from the initial RAM file system. Loads the kernel modules listed in
# /modules, takes the host's root, read-only, under an overlay in memory, and hands over to setup.sh of the job.
b=/bin/busybox
$b mkdir -p /proc /sys /host /over /new
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
while read -r module; do
    $b insmod "$module" || echo "dat-vm: insmod $module failed"
done < /modules
# cache=loose: no process changes the host's files under a running machine, and programs load ten times faster.
$b mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=loose,ro host /host
$b mount -t tmpfs over /over
$b mkdir -p /over/up /over/work
$b mount -t overlay -o lowerdir=/host,upperdir=/over/up,workdir=/over/work overlay /new
$b mount -t proc proc /new/proc
$b mount -t sysfs sys /new/sys
$b mount -t devtmpfs dev /new/dev
$b mkdir -p /new/dev/shm /new/dev/pts
$b mount -t tmpfs shm /new/dev/shm
$b mount -t devpts pts /new/dev/pts
$b mount -t tmpfs run /new/run
$b mkdir -p /new/run/dat-vm
$b mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000 job /new/run/dat-vm
$b chroot /new /bin/sh /run/dat-vm/setup.sh
$b sync
$b poweroff -f
