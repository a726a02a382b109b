# QOS, accounts and users as the topology says; what exists already stays.
sacctmgr --immediate add qos short || true
sacctmgr --immediate modify qos short set Priority=0 MaxWall=01:00:00 MaxJobsPerUser=10 MaxSubmitJobsPerUser=-1 MaxTRESPerUser=cpu=-1 || true
sacctmgr --immediate add account physics Parent=root Fairshare=1 QOS=normal,short || true
sacctmgr --immediate modify account physics set Fairshare=1 QOS=normal,short || true
sacctmgr --immediate add user ada Account=physics || true
sacctmgr --immediate modify user ada set AdminLevel=Administrator || true
