BEGIN TRANSACTION;
CREATE TABLE "_sqlite_migrations" (
   "id" INTEGER PRIMARY KEY,
   "migration_set" TEXT,
   "name" TEXT,
   "applied_at" TEXT
);
INSERT INTO "_sqlite_migrations" VALUES(1,'gpuwatch','001','2026-11-23 03:59:58.795000+00:00');
INSERT INTO "_sqlite_migrations" VALUES(2,'gpuwatch','002','2026-11-23 03:59:58.795321+00:00');
INSERT INTO "_sqlite_migrations" VALUES(3,'gpuwatch','003','2026-11-23 03:59:58.795388+00:00');
INSERT INTO "_sqlite_migrations" VALUES(4,'gpuwatch','004','2026-11-23 03:59:58.795608+00:00');
INSERT INTO "_sqlite_migrations" VALUES(5,'gpuwatch','005','2026-11-23 03:59:58.795705+00:00');
INSERT INTO "_sqlite_migrations" VALUES(6,'gpuwatch','006','2026-11-23 03:59:58.795900+00:00');
CREATE TABLE clocks (
            boot_id TEXT NOT NULL, begin_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL, wall_offset_ns INTEGER NOT NULL,
            PRIMARY KEY (boot_id, begin_ns)) STRICT;
INSERT INTO "clocks" VALUES('00000000-0000-4000-8000-000000000000',1000000000000,1000000000000,1700000000000000000);
CREATE TABLE devices (
            id INTEGER PRIMARY KEY, boot_id TEXT NOT NULL, since_ns INTEGER NOT NULL, since_wall_s REAL NOT NULL,
            uuid TEXT NOT NULL, name TEXT NOT NULL, "pci_bus_id" TEXT, "driver_version" TEXT, "nvml_version" TEXT, "vbios_version" TEXT, "architecture" TEXT, "compute_capability" TEXT, "parent_uuid" TEXT, "simulated" INTEGER, "sm_clock_max_mhz" INTEGER, "mem_clock_max_mhz" INTEGER, "power_limit_w" REAL, "power_limit_default_w" REAL, "power_limit_min_w" REAL, "power_limit_max_w" REAL, "temperature_slowdown_c" INTEGER, "temperature_shutdown_c" INTEGER, "memory_total_bytes" INTEGER, "memory_reserved_bytes" INTEGER, "pcie_generation_max_count" INTEGER, "pcie_width_max_count" INTEGER, "numa_node_count" INTEGER, "cuda_cores_count" INTEGER, "memory_bus_bits_count" INTEGER, "persistence_mode" INTEGER, "ecc_mode" INTEGER, "mig_mode" INTEGER, "compute_mode" TEXT, "virtualization" TEXT, "supported_reasons_mask" INTEGER, "idle_power_w" REAL) STRICT;
INSERT INTO "devices" VALUES(1,'00000000-0000-4000-8000-000000000000',1000000000000,1700001000.0,'GPU-00000000-0000-0000-0000-000000000001','NVIDIA H200',NULL,'580.159.04',NULL,NULL,NULL,NULL,NULL,0,NULL,NULL,700.0,NULL,NULL,NULL,NULL,NULL,NULL,645000000,NULL,NULL,NULL,NULL,NULL,1,NULL,0,NULL,NULL,NULL,NULL);
CREATE TABLE events (
            id INTEGER PRIMARY KEY, uuid TEXT NOT NULL, boot_id TEXT NOT NULL, at_ns INTEGER NOT NULL,
            at_wall_s REAL NOT NULL, kind TEXT NOT NULL, value INTEGER, text TEXT) STRICT;
CREATE TABLE evidence (
            run TEXT NOT NULL REFERENCES runs(id), uuid TEXT NOT NULL, capsule BLOB NOT NULL,
            PRIMARY KEY (run, uuid)) STRICT;
INSERT INTO "evidence" VALUES('0ca7f00d01','GPU-00000000-0000-0000-0000-000000000001',X'65766964656E6365');
CREATE TABLE findings (
            run TEXT NOT NULL REFERENCES runs(id), uuid TEXT, position INTEGER NOT NULL, rule TEXT NOT NULL,
            severity TEXT, accepted INTEGER NOT NULL, says TEXT NOT NULL, remedy TEXT NOT NULL, effect_ratio REAL,
            begin_ns INTEGER, end_ns INTEGER, facts TEXT NOT NULL) STRICT;
INSERT INTO "findings" VALUES('0ca7f00d01','GPU-00000000-0000-0000-0000-000000000001',0,'power-limited','flag',0,'power-limited says so','stop it',0.1,1,2,'{"x":1}');
CREATE TABLE recorded_windows (
            record INTEGER NOT NULL REFERENCES work_records(id), run TEXT NOT NULL, numbers TEXT NOT NULL,
            PRIMARY KEY (record, run)) STRICT, WITHOUT ROWID;
CREATE TABLE refresh (
            uuid TEXT NOT NULL, signal TEXT NOT NULL, refresh_ns INTEGER NOT NULL, PRIMARY KEY (uuid, signal)) STRICT;
INSERT INTO "refresh" VALUES('GPU-00000000-0000-0000-0000-000000000001','power_w',100000000);
CREATE TABLE runs (
            id TEXT PRIMARY KEY, label TEXT, claim TEXT NOT NULL, status TEXT NOT NULL, badness INTEGER NOT NULL,
            why TEXT NOT NULL, begun_wall_s REAL NOT NULL, boot_id TEXT NOT NULL, begin_ns INTEGER NOT NULL,
            end_ns INTEGER, pid INTEGER NOT NULL, uid INTEGER NOT NULL, user TEXT, process TEXT, parent TEXT,
            source TEXT NOT NULL, simulated INTEGER NOT NULL, policy TEXT NOT NULL, uuids TEXT NOT NULL,
            pids TEXT NOT NULL, told TEXT NOT NULL, host TEXT, "program" TEXT, "tags" TEXT) STRICT;
INSERT INTO "runs" VALUES('0ca7f00d01','gemm','sustained','valid',0,'',1700000000.0,'00000000-0000-4000-8000-000000000000',1005000000000,1009000000000,4242,1000,'me','python',NULL,'synthetic',0,'{"claim":"sustained"}','["GPU-00000000-0000-0000-0000-000000000001"]','[4242,4243]','{"tf32":true,"flops":1.5}','{"boot_id":"00000000-0000-4000-8000-000000000000","hostname":null,"kernel":null,"container":null,"cpu_allowed_count":null,"span_s":null,"cpu_s":3.5,"run_wait_s":null,"threads_count":null,"cgroup_throttled_s":null,"steal_ratio":null,"cpu_busy_ratio":null,"cpu_pressure_ratio":null,"numa_nodes":null,"profilers":null,"sharing":null,"threads_born_count":null,"processes_born_count":null,"born_cpu_s":null,"wall_step_s":null,"watcher_cpu_s":null}',NULL,NULL);
CREATE TABLE signatures (
            run TEXT NOT NULL REFERENCES runs(id), position INTEGER NOT NULL, signature BLOB NOT NULL,
            PRIMARY KEY (run, position)) STRICT;
INSERT INTO "signatures" VALUES('0ca7f00d01',0,X'000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000');
CREATE TABLE spans (
            run TEXT NOT NULL REFERENCES runs(id), what TEXT NOT NULL, count INTEGER NOT NULL, begin_ns BLOB NOT NULL,
            end_ns BLOB NOT NULL, named BLOB NOT NULL, names TEXT NOT NULL, PRIMARY KEY (run, what)) STRICT;
CREATE TABLE timings (
            run TEXT PRIMARY KEY REFERENCES runs(id), count INTEGER NOT NULL, at_ns BLOB NOT NULL, took_s BLOB NOT NULL, "sm_clock_mhz" BLOB, "calls_count" INTEGER)
            STRICT;
CREATE TABLE verdicts (
            run TEXT NOT NULL REFERENCES runs(id), position INTEGER NOT NULL, uuid TEXT, status TEXT NOT NULL,
            verdict BLOB NOT NULL, PRIMARY KEY (run, position)) STRICT;
INSERT INTO "verdicts" VALUES('0ca7f00d01',0,'GPU-00000000-0000-0000-0000-000000000001','flagged',X'789CCD90CF4AC43010C65FA5CC3995EE1E7B1304DD8BEC452FB22C633AA981348DC964B594BEBB935216567C00E790C3377FBEDF971992FEA001A1DD29488C9C13B4601CF63D75A0A0A38BD504ED0C39DB4E5A8FC797BAD9AAFEE3D96A27BB1E07D984E7D7C3C3E1BE7ADA370D2C0A8CF59DF5BDD8BCCD10B32B2361FCA2583B3B585E5DD12711A8F89931FB2225BA50B43C6D7445C129FDDEAD8A58A551DA9106EACA78E23154964532A839952CDF125750C818D27C8EC87684B6B92B5F10D09F7D81DBA9FD49C13B265B5C989CDCE338AD973FB35DE90CBA4482AB3505BE0A8BBA064B380427783D86DB58DA11C69B583E3BF79F439D961F972AB397');
CREATE TABLE work_records (
            id INTEGER PRIMARY KEY, uid INTEGER NOT NULL, source TEXT NOT NULL, work TEXT NOT NULL, latest TEXT NOT NULL,
            UNIQUE (uid, source, work)) STRICT;
CREATE UNIQUE INDEX "idx__sqlite_migrations_migration_set_name"
    ON "_sqlite_migrations" ("migration_set", "name");
CREATE INDEX devices_uuid ON devices (uuid, since_wall_s);
CREATE INDEX runs_time ON runs (begun_wall_s);
CREATE INDEX runs_worst ON runs (badness, begun_wall_s);
CREATE INDEX runs_label ON runs (label, begun_wall_s);
CREATE INDEX runs_status ON runs (status, begun_wall_s);
CREATE INDEX findings_run ON findings (run);
CREATE INDEX findings_rule ON findings (rule);
CREATE INDEX events_time ON events (uuid, boot_id, at_ns);
CREATE VIEW "windows" AS 
    SELECT strftime('%Y-%m-%d %H:%M:%f', runs.begun_wall_s, 'unixepoch') AS begun_utc,
        round((runs.end_ns - runs.begin_ns) / 1e9, 3) AS length_s,
        runs.status, runs.label, (SELECT group_concat(name, ', ') FROM (
        SELECT DISTINCT devices.name FROM json_each(runs.uuids) JOIN devices ON devices.uuid = json_each.value)) AS gpu,
        (SELECT group_concat(rule, ', ') FROM (
            SELECT DISTINCT rule FROM findings WHERE findings.run = runs.id AND NOT accepted ORDER BY position)) AS hazards,
        runs.claim, runs.process, runs.user, runs.why, runs.simulated, runs.id
    FROM runs ORDER BY runs.begun_wall_s DESC;
CREATE VIEW "hazards" AS 
    SELECT strftime('%Y-%m-%d %H:%M:%f', runs.begun_wall_s, 'unixepoch') AS begun_utc, runs.label, findings.rule, findings.severity,
        findings.says, findings.remedy, findings.effect_ratio, findings.accepted,
        (SELECT devices.name FROM devices WHERE devices.uuid = findings.uuid ORDER BY since_wall_s DESC LIMIT 1) AS gpu,
        findings.uuid, runs.status, runs.id AS run
    FROM findings JOIN runs ON runs.id = findings.run ORDER BY runs.begun_wall_s DESC, findings.position;
CREATE VIEW "gpus" AS 
    SELECT strftime('%Y-%m-%d %H:%M:%f', since_wall_s, 'unixepoch') AS since_utc, uuid, name, driver_version, pci_bus_id, power_limit_w, sm_clock_max_mhz
    FROM devices ORDER BY since_wall_s DESC;
CREATE INDEX runs_moment ON runs (boot_id, begin_ns);
CREATE INDEX runs_span ON runs (boot_id, end_ns, begin_ns);
COMMIT;
