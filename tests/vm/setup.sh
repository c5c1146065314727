# Runs as root inside the emulated machine: makes the Soft-RoCE devices, then runs the job's command with its output
# on the second serial line, and leaves its exit status in a file.
#   rxe0 on d0, 192.168.77.1    rxe1 on d1, 192.168.78.1
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C
job=/run/dat-vm
stty -F /dev/ttyS1 raw -echo
ulimit -l unlimited
hostname dat-vm
# Programs look up their own host, as mpiexec does. The file is the overlay's.
echo '127.0.0.1 dat-vm' >> /etc/hosts
ip link set lo up
for n in 0 1; do
    ip link add "d$n" type dummy
    ip addr add "192.168.7$((7 + n)).1/24" dev "d$n"
    ip link set "d$n" up
    # `rdma link add` comes with iproute2.
    if ! rdma link add "rxe$n" type rxe netdev "d$n" > /dev/ttyS1 2>&1; then
        echo "dat-vm: the device rxe$n could not be made" > /dev/ttyS1
        exit
    fi
done
. "$job/job.sh" > "$job/shell.log" 2>&1
(
    cd "$directory" || exit 126
    /bin/bash "$job/command.sh" < /dev/null 2>&1
    echo $? > "$job/status"
) | cat > /dev/ttyS1
sync
