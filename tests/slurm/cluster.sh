# Sourced after ../launch/hosts.sh and ../cli/cases.sh, by scripts that need Slurm: Debian's slurm-wlm and munge on hosts made of
# namespaces, without systemd. The controller is on `head`, which has no ranks; each other host runs a slurmd.
#
#     make_slurm 2 [LINE]...   hosts node-1 and node-2, of 16 CPUs each; LINEs are added to slurm.conf
#     submit NAME ARGUMENT...  sbatch; sets $job. The job's output is $work/NAME.out, its errors $work/NAME.err
#     job_is STATE...          whether the job is in one of these states
#     lose_host node-2         kills all of a host's processes: slurmd, its steps, the ranks
#     return_host node-2
for tool in munged slurmctld slurmd sbatch srun scontrol; do
    command -v $tool >/dev/null || PATH="$PATH:/usr/sbin"
    command -v $tool >/dev/null || { echo "skipped: no $tool; tools/install-deps slurm"; exit 77; }
done

slurm_conf() {
    cat <<END
ClusterName=test
SlurmctldHost=head
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$work/slurm/munge.socket
CredType=cred/munge
StateSaveLocation=$work/slurm/state
SlurmctldPidFile=$work/slurm/slurmctld.pid
SlurmctldLogFile=$work/slurm/slurmctld.log
SlurmdSpoolDir=$work/slurm/spool-%n
SlurmdPidFile=$work/slurm/%n.pid
SlurmdLogFile=$work/slurm/%n.log
SlurmdTimeout=60
SlurmdParameters=config_overrides
TmpFS=$work/slurm/tmp-%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,batch_sched_delay=0
ReturnToService=2
MinJobAge=3600
NodeName=node-[1-$1] CPUs=16
PartitionName=all Nodes=ALL Default=YES State=UP MaxTime=INFINITE
END
    shift
    [ $# = 0 ] || printf '%s\n' "$@"
}

start_slurmd() {
    mkdir -p "$work/slurm/spool-$1" "$work/slurm/tmp-$1"
    on "$1" slurmd -D -N "$1" -f "$SLURM_CONF" >"$work/slurm/$1.start" 2>&1 &
}

nodes_are_up() { [ "$(sinfo -h -t idle -o %D 2>/dev/null)" = "$hosts_made" ]; }

make_slurm() {
    make_hosts "$1"
    mkdir -p "$work/slurm/state"
    chmod 700 "$work/slurm"
    head -c 1024 /dev/urandom >"$work/slurm/munge.key"
    chmod 400 "$work/slurm/munge.key"
    export SLURM_CONF="$work/slurm/slurm.conf"
    slurm_conf "$@" >"$SLURM_CONF"
    munged --force --foreground --key-file="$work/slurm/munge.key" --socket="$work/slurm/munge.socket" --pid-file="$work/slurm/munge.pid" \
        --seed-file="$work/slurm/munge.seed" --log-file="$work/slurm/munge.log" >"$work/slurm/munge.start" 2>&1 &
    within test -S "$work/slurm/munge.socket"
    slurmctld -D -i -f "$SLURM_CONF" >"$work/slurm/slurmctld.start" 2>&1 &
    for i in $(each_host); do start_slurmd "node-$i"; done
    within nodes_are_up || fail "Slurm has not started"
}

submit() {
    name=$1
    shift
    rm -f "$work/$name.out" "$work/$name.err"
    job=$(sbatch --parsable --output="$work/$name.out" --error="$work/$name.err" "$@")
}

job_state() { scontrol -o show job "$job" 2>/dev/null | sed 's/.* JobState=\([A-Z_]*\).*/\1/'; }
job_is() { case " $* " in *" $(job_state) "*) ;; *) return 1 ;; esac }
