"""Which keys each Slurm release takes in its configuration files, and what their values are."""

from __future__ import annotations

import functools
from typing import NamedTuple

from slurm.errors import nearest
from slurm.stack.versions import MAJORS, at_least


class Span(NamedTuple):
    """A key's kind (text, number, flag, float, list) and the releases that take it."""

    kind: str
    since: str = MAJORS[0]
    until: str = ""

    def takes(self, version: str) -> bool:
        """Whether that release takes the key; `until` is the first that does not."""
        return at_least(version, self.since) and not (self.until and at_least(version, self.until))


class Objection(NamedTuple):
    """Why a key cannot stand in a file, and what to do."""

    what: str
    fix: str


# One key can stand in several lines of these, each with further words on the line.
_LISTS = "DownNodes NodeName NodeSet PartitionName SlurmctldHost"

_SLURM = {
    "text": """
        AccountingStorageBackupHost AccountingStorageEnforce AccountingStorageExternalHost
        AccountingStorageHost AccountingStorageParameters AccountingStoragePass
        AccountingStorageTRES AccountingStorageType AccountingStoreFlags AcctGatherEnergyType
        AcctGatherFilesystemType AcctGatherInfinibandType AcctGatherInterconnectType
        AcctGatherProfileType AuthAltParameters AuthAltTypes AuthInfo AuthType BackupAddr
        BackupController BurstBufferParameters BurstBufferType CliFilterPlugins ClusterName
        CommunicationParameters ControlAddr ControlMachine CpuFreqDef CpuFreqGovernors CredType
        CryptoType DebugFlags DependencyParameters EnforcePartLimits Epilog EpilogSlurmctld
        FederationParameters GpuFreqDef GresTypes HealthCheckNodeState HealthCheckProgram
        InteractiveStepOptions JobAcctGatherFrequency JobAcctGatherParams JobAcctGatherType
        JobCompHost JobCompLoc JobCompParams JobCompPass JobCompType JobCompUser JobContainerType
        JobSubmitPlugins LaunchParameters LaunchType Licenses LogTimeFormat MCSParameters MCSPlugin
        MailDomain MailProg MpiDefault MpiParams NodeFeaturesPlugins PlugStackConfig PluginDir
        PrEpParameters PrEpPlugins PreemptExemptTime PreemptMode PreemptType PriorityCalcPeriod
        PriorityDecayHalfLife PriorityFlags PriorityMaxAge PriorityParameters
        PrioritySiteFactorParameters PrioritySiteFactorPlugin PriorityType PriorityUsageResetPeriod
        PriorityWeightTRES PrivateData ProctrackType Prolog PrologFlags PrologSlurmctld
        PropagateResourceLimits PropagateResourceLimitsExcept RebootProgram ReconfigFlags
        RequeueExit RequeueExitHold ResumeFailProgram ResumeProgram ResvEpilog ResvProlog
        RoutePlugin SallocDefaultCommand SbcastParameters SchedulerParameters SchedulerType
        ScronParameters SelectType SelectTypeParameters SlurmSchedLogFile SlurmUser SlurmctldAddr
        SlurmctldDebug SlurmctldLogFile SlurmctldParameters SlurmctldPidFile SlurmctldPort
        SlurmctldPrimaryOffProg SlurmctldPrimaryOnProg SlurmctldSyslogDebug SlurmdDebug
        SlurmdLogFile SlurmdParameters SlurmdPidFile SlurmdSpoolDir SlurmdSyslogDebug SlurmdUser
        SrunEpilog SrunPortRange SrunProlog StateSaveLocation SuspendExcNodes SuspendExcParts
        SuspendProgram SuspendTime SwitchParameters SwitchType TaskEpilog TaskPlugin
        TaskPluginParam TaskProlog TmpFS TopologyParam TopologyPlugin UnkillableStepProgram
        X11Parameters""",
    "number": """
        AccountingStoragePort AcctGatherNodeFreq BatchStartTimeout CompleteWait DefCPUPerGPU
        DefMemPerCPU DefMemPerGPU DefMemPerNode EioTimeout EpilogMsgTime FairShareDampeningFactor
        FirstJobId GroupUpdateForce GroupUpdateTime HealthCheckInterval InactiveLimit JobCompPort
        JobFileAppend JobRequeue KeepAliveTime KillOnBadExit KillWait MaxArraySize MaxDBDMsgs
        MaxJobCount MaxJobId MaxMemPerCPU MaxMemPerNode MaxStepCount MaxTasksPerNode MessageTimeout
        MinJobAge OverTimeLimit PriorityWeightAge PriorityWeightAssoc PriorityWeightFairshare
        PriorityWeightJobSize PriorityWeightPartition PriorityWeightQOS PrologEpilogTimeout
        PropagatePrioProcess ResumeRate ResumeTimeout ResvOverRun ReturnToService
        SchedulerTimeSlice SlurmSchedLogLevel SlurmctldTimeout SlurmdPort SlurmdTimeout SuspendRate
        SuspendTimeout TCPTimeout TreeWidth UnkillableStepTimeout VSizeFactor WaitTime""",
    "flag": "AccountingStoreJobComment AllowSpecResourcesUsage DisableRootJobs TrackWCKey UsePAM",
    "list": _LISTS,
}
_SLURM_CHANGES = {
    **dict.fromkeys(("BcastExclude", "BcastParameters"), Span("text", "21.08")),
    "MaxNodeCount": Span("number", "22.05"),
    "MaxBatchRequeue": Span("number", "23.02"),
    **dict.fromkeys(("PreemptParameters", "SuspendExcStates"), Span("text", "23.02")),
    "SlurmctldPlugstack": Span("text", until="23.02"),
    **dict.fromkeys(
        ("ExtSensorsType", "JobCredentialPrivateKey", "JobCredentialPublicCertificate"),
        Span("text", until="23.11"),
    ),
    "ExtSensorsFreq": Span("number", until="23.11"),
    **dict.fromkeys(("HashPlugin", "TLSParameters", "TLSType"), Span("text", "24.05")),
    **dict.fromkeys(
        ("CoreSpecPlugin", "PowerParameters", "PowerPlugin"), Span("text", until="24.05")
    ),
    **dict.fromkeys(
        ("CertmgrType", "CertmgrParameters", "DataParserParameters"), Span("text", "24.11")
    ),
    **dict.fromkeys(("CertgenType", "CertgenParameters"), Span("text", "25.05")),
    **dict.fromkeys(("EpilogTimeout", "PrologTimeout"), Span("number", "25.05")),
    "FrontendName": Span("list", until="25.05"),
    "GetEnvTimeout": Span("number", until="25.05"),
    **dict.fromkeys(
        ("CliFilterParameters", "HttpParserType", "JobCompPassScript", "MetricsType",
         "NamespaceType", "UrlParserType"),
        Span("text", "25.11"),
    ),
    **dict.fromkeys(("AccountingStorageLoc", "AccountingStorageUser"), Span("text", until="25.11")),
    "HealthCheckTimeout": Span("number", "26.05"),
    **dict.fromkeys(
        ("LicenseParameters", "MetricsAuthUsers", "MetricsParameters",
         "SlurmctldHttpAuthParameters", "SlurmdHttpAuthParameters"),
        Span("text", "26.05"),
    ),
    "PowerAction": Span("list", "26.05"),
}  # fmt: skip

_NODE = {
    "text": """
        BcastAddr CPUSpecList CpuBind Feature Features Gres NodeAddr NodeHostname NodeName Port
        Reason State TRESWeights""",
    "number": """
        Boards CPUs CoreSpecCount CoresPerSocket MemSpecLimit Procs RealMemory Sockets
        SocketsPerBoard ThreadsPerCore TmpDisk Weight""",
}
_NODE_CHANGES = {
    "RestrictedCoresPerGPU": Span("number", "24.05"),
    "Topology": Span("text", "25.05"),
    **dict.fromkeys(("GresConf", "Parameters"), Span("text", "25.11")),
    "SuspendTime": Span("text", "26.05"),
}

_PARTITION = {
    "text": """
        AllocNodes AllowAccounts AllowGroups AllowQos Alternate CpuBind DefaultTime DenyAccounts
        DenyQos MaxNodes MaxTime Nodes OverSubscribe OverTimeLimit PartitionName PreemptMode QOS
        SelectTypeParameters Shared State SuspendTime TRESBillingWeights""",
    "number": """
        DefCPUPerGPU DefMemPerCPU DefMemPerGPU DefMemPerNode GraceTime MaxCPUsPerNode MaxMemPerCPU
        MaxMemPerNode MinNodes Priority PriorityJobFactor PriorityTier ResumeTimeout
        SuspendTimeout""",
    "flag": "Default DisableRootJobs ExclusiveUser Hidden LLN ReqResv RootOnly",
}
_PARTITION_CHANGES = {
    "MaxCPUsPerSocket": Span("number", "23.02"),
    "PowerDownOnIdle": Span("flag", "23.02"),
    "ExclusiveTopo": Span("flag", "24.05"),
    "Topology": Span("text", "25.05"),
    "Exclusive": Span("text", "26.05"),
}

_SLURMDBD = {
    "flag": """
        AllowNoDefAcct ArchiveEvents ArchiveJobs ArchiveResvs ArchiveSteps ArchiveSuspend
        ArchiveTXN ArchiveUsage TrackSlurmctldDown TrackWCKey""",
    "text": """
        ArchiveDir ArchiveScript AuthAltParameters AuthAltTypes AuthInfo AuthType
        CommunicationParameters DbdAddr DbdBackupHost DbdHost DebugFlags DebugLevel
        DebugLevelSyslog DefaultQOS LogFile LogTimeFormat MaxQueryTimeRange Parameters PidFile
        PluginDir PrivateData PurgeEventAfter PurgeJobAfter PurgeResvAfter PurgeStepAfter
        PurgeSuspendAfter PurgeTXNAfter PurgeUsageAfter SlurmUser StorageBackupHost StorageHost
        StorageLoc StorageParameters StoragePass StorageType StorageUser""",
    "number": "CommitDelay DbdPort MessageTimeout StoragePort TCPTimeout",
}
_SLURMDBD_CHANGES = {
    "AllResourcesAbsolute": Span("flag", "23.02"),
    "DisableCoordDBD": Span("flag", "24.05"),
    **dict.fromkeys(("HashPlugin", "TLSParameters", "TLSType"), Span("text", "24.05")),
    "DisableArchiveCommands": Span("flag", "25.11"),
    "MaxPurgeLimit": Span("number", "25.11"),
    "StoragePassScript": Span("text", "25.11"),
    **dict.fromkeys(("ArchiveJobScript", "ArchiveJobEnv", "DisableRollups"), Span("flag", "26.05")),
    **dict.fromkeys(("PurgeJobScriptAfter", "PurgeJobEnvAfter"), Span("text", "26.05")),
}

_CGROUP = {
    "flag": """
        ConstrainCores ConstrainDevices ConstrainRAMSpace ConstrainSwapSpace
        MemoryLimitEnforcement""",
    "text": "AllowedDevicesFile CgroupMountpoint",
    "number": "MemorySwappiness MinRAMSpace",
    "float": """
        AllowedRAMSpace AllowedSwapSpace MaxRAMPercent MaxSwapPercent MemoryLimitThreshold""",
}
_CGROUP_CHANGES = {
    "CgroupPlugin": Span("text", "21.08"),
    **dict.fromkeys(("IgnoreSystemd", "IgnoreSystemdOnFailure"), Span("flag", "22.05")),
    "CgroupAutomount": Span("flag", until="23.11"),
    "ConstrainKmemSpace": Span("flag", until="23.11"),
    **dict.fromkeys(("AllowedKmemSpace", "MaxKmemPercent"), Span("float", until="23.11")),
    "MinKmemSpace": Span("number", until="23.11"),
    "RootOwnedCgroups": Span("flag", "23.02", "23.11"),
    "EnableControllers": Span("flag", "23.02"),
    "SignalChildrenProcesses": Span("flag", "23.11"),
    "SystemdTimeout": Span("number", "24.05"),
    "EnableExtraControllers": Span("text", "25.05"),
    "CgroupReleaseAgentDir": Span("text", until="25.11"),
    "CgroupSlice": Span("text", "25.11"),
    "CgroupJobIdPaths": Span("flag", "26.05"),
}

_GRES = {
    "text": """
        AutoDetect CPUs Cores Count File Files Flags Link Links MultipleFiles Name NodeName Type"""
}

_OCI = {
    "text": """
        ContainerPath RunTimeCreate RunTimeDelete RunTimeKill RunTimeQuery RunTimeRun
        RunTimeStart""",
    "flag": "CreateEnvFile",
}
_OCI_CHANGES = {
    **dict.fromkeys(
        ("DebugFlags", "EnvExclude", "FileDebug", "MountSpoolDir", "RunTimeEnvExclude", "SrunArgs",
         "SrunPath", "StdIODebug", "SyslogDebug"),
        Span("text", "23.02"),
    ),
    **dict.fromkeys(("DisableCleanup", "IgnoreFileConfigJson"), Span("flag", "23.02")),
    "DisableHooks": Span("text", "23.02"),
}  # fmt: skip

_FILES: dict[str, tuple[dict[str, str], dict[str, Span]]] = {
    "slurm.conf": (_SLURM, _SLURM_CHANGES),
    "NodeName": (_NODE, _NODE_CHANGES),
    "PartitionName": (_PARTITION, _PARTITION_CHANGES),
    "NodeSet": ({"text": "Feature NodeSet Nodes"}, {}),
    "DownNodes": ({"text": "DownNodes Reason State"}, {}),
    "slurmdbd.conf": (_SLURMDBD, _SLURMDBD_CHANGES),
    "cgroup.conf": (_CGROUP, _CGROUP_CHANGES),
    "gres.conf": (_GRES, {}),
    "oci.conf": (_OCI, _OCI_CHANGES),
}


@functools.cache
def keys(file: str) -> dict[str, tuple[str, Span]]:
    """The keys of a file, or of a line such as `NodeName`, by their lower-case names."""
    always, changes = _FILES[file]
    spans = {name: Span(kind) for kind, names in always.items() for name in names.split()}
    spans.update(changes)
    return {name.lower(): (name, span) for name, span in spans.items()}


def why_not(file: str, word: str, version: str) -> Objection | None:
    """Why a release does not take this key there, or None when it does."""
    known = keys(file)
    found = known.get(word.lower())
    if found is None:
        close = nearest(word.lower(), known)
        fix = f"did you mean {known[close][0]}?" if close else "remove the line"
        return Objection(f"{file} has no key {word}", fix)
    name, span = found
    if span.takes(version):
        return None
    if not at_least(version, span.since):
        what = f"{name} came with Slurm {span.since}, and this is {version}"
        return Objection(what, f"remove it, or take Slurm {span.since} or later")
    return Objection(f"{name} is gone since Slurm {span.until}, and this is {version}", "remove it")
