BEGIN TRANSACTION;
CREATE TABLE "_sqlite_migrations" (
   "id" INTEGER PRIMARY KEY,
   "migration_set" TEXT,
   "name" TEXT,
   "applied_at" TEXT
);
INSERT INTO "_sqlite_migrations" VALUES(1,'gpuwatch-readings','001','2026-11-23 03:59:58.815892+00:00');
INSERT INTO "_sqlite_migrations" VALUES(2,'gpuwatch-readings','002','2026-11-23 03:59:58.815968+00:00');
CREATE TABLE census (
            id INTEGER PRIMARY KEY, at_ns INTEGER GENERATED ALWAYS AS (id >> 6) VIRTUAL,
            gpu INTEGER GENERATED ALWAYS AS (id & 63) VIRTUAL, stood_ms INTEGER NOT NULL, took_us INTEGER NOT NULL, visibility TEXT NOT NULL, present TEXT NOT NULL)
            STRICT;
INSERT INTO "census" VALUES(64000003871616,0,10,'host','[[0,2355000000,null]]');
INSERT INTO "census" VALUES(64000005151616,0,10,'host','[[0,2355000000,0.97]]');
INSERT INTO "census" VALUES(64012803184320,1599,10,'host','[[0,2355000000,null]]');
CREATE TABLE edge (id INTEGER PRIMARY KEY, at_ns INTEGER GENERATED ALWAYS AS (id >> 6) VIRTUAL,
            gpu INTEGER GENERATED ALWAYS AS (id & 63) VIRTUAL, stood_ms INTEGER NOT NULL, "power_violation_ns" INTEGER, "thermal_violation_ns" INTEGER, "sm_clock_mhz" INTEGER, "mem_clock_mhz" INTEGER, "power_mw" REAL, "power_average_mw" REAL, "temperature_c" INTEGER, "event_reasons_mask" INTEGER, "utilization_percent" REAL, "mem_utilization_percent" REAL, "memory_used_kib" REAL, "power_cap_ns" INTEGER, "sync_boost_ns" INTEGER, "sw_thermal_ns" INTEGER) STRICT;
CREATE TABLE fast (id INTEGER PRIMARY KEY, at_ns INTEGER GENERATED ALWAYS AS (id >> 6) VIRTUAL,
            gpu INTEGER GENERATED ALWAYS AS (id & 63) VIRTUAL, stood_ms INTEGER NOT NULL, "sm_clock_mhz" INTEGER, "mem_clock_mhz" INTEGER, "power_mw" REAL, "power_average_mw" REAL, "temperature_c" INTEGER, "event_reasons_mask" INTEGER, "utilization_percent" REAL, "mem_utilization_percent" REAL, "memory_used_kib" REAL, "power_cap_ns" INTEGER, "sync_boost_ns" INTEGER, "sw_thermal_ns" INTEGER) STRICT;
INSERT INTO "fast" VALUES(64000003231616,50,1920,3201,566418.0,560642.0,50,4,97.0,40.0,2929688.0,45073200000,0,0);
INSERT INTO "fast" VALUES(64006404076224,49,1920,3201,557653.0,560343.0,50,4,97.0,40.0,2929688.0,45146400000,0,0);
INSERT INTO "fast" VALUES(64012802544320,50,1935,3201,573379.0,561647.0,50,4,97.0,40.0,2929688.0,45219600000,0,0);
INSERT INTO "fast" VALUES(64019201168256,50,1935,3201,564486.0,561931.0,50,4,97.0,40.0,2929688.0,45292800000,0,0);
INSERT INTO "fast" VALUES(64025601172224,50,1920,3201,566405.0,562378.0,50,4,97.0,40.0,2929688.0,45366000000,0,0);
INSERT INTO "fast" VALUES(64032005915392,49,1920,3201,554903.0,561631.0,50,4,97.0,40.0,2929688.0,45439200000,0,0);
INSERT INTO "fast" VALUES(64038401232768,50,1905,3201,561224.0,561590.0,50,4,97.0,40.0,2929688.0,45512400000,0,0);
INSERT INTO "fast" VALUES(64044804696000,49,1905,3201,578029.0,563234.0,50,4,97.0,40.0,2929688.0,45585600000,0,0);
INSERT INTO "fast" VALUES(64051202967808,50,1935,3201,555935.0,562504.0,50,4,97.0,40.0,2929688.0,45658800000,0,0);
INSERT INTO "fast" VALUES(64057604001408,49,1935,3201,570418.0,563295.0,50,4,97.0,40.0,2929688.0,45732000000,0,0);
INSERT INTO "fast" VALUES(64064004373376,50,1980,3201,565047.0,563470.0,50,4,97.0,40.0,2929688.0,45805200000,0,0);
INSERT INTO "fast" VALUES(64070401004032,50,1980,3201,557806.0,562904.0,50,4,97.0,40.0,2929688.0,45878400000,0,0);
INSERT INTO "fast" VALUES(64076800767808,50,1980,3201,550616.0,561675.0,50,4,97.0,40.0,2929688.0,45951600000,0,0);
INSERT INTO "fast" VALUES(64083200181440,50,1980,3201,582353.0,563743.0,50,4,97.0,40.0,2929688.0,46024800000,0,0);
INSERT INTO "fast" VALUES(64089601551616,50,1980,3201,564181.0,563787.0,50,4,97.0,40.0,2929688.0,46098000000,0,0);
INSERT INTO "fast" VALUES(64096000191104,50,1980,3201,557044.0,563113.0,50,4,97.0,40.0,2929688.0,46171200000,0,0);
INSERT INTO "fast" VALUES(64102403570304,49,1965,3201,554952.0,562297.0,50,4,97.0,40.0,2929688.0,46244400000,0,0);
INSERT INTO "fast" VALUES(64108800603712,50,1965,3201,555547.0,561622.0,50,4,97.0,40.0,2929688.0,46317600000,0,0);
INSERT INTO "fast" VALUES(64115202525440,49,1875,3201,563027.0,561762.0,50,4,97.0,40.0,2929688.0,46390800000,0,0);
INSERT INTO "fast" VALUES(64121605003648,49,1875,3201,570076.0,562593.0,50,4,97.0,40.0,2929688.0,46464000000,0,0);
CREATE TABLE gaps (
            begin_ns INTEGER NOT NULL, gpu INTEGER NOT NULL, lane TEXT NOT NULL, end_ns INTEGER,
            PRIMARY KEY (begin_ns, gpu, lane)) STRICT, WITHOUT ROWID;
CREATE TABLE gpus (gpu INTEGER PRIMARY KEY, uuid TEXT NOT NULL UNIQUE) STRICT;
INSERT INTO "gpus" VALUES(0,'GPU-00000000-0000-0000-0000-000000000001');
CREATE TABLE power (id INTEGER PRIMARY KEY, at_ns INTEGER GENERATED ALWAYS AS (id >> 6) VIRTUAL,
            gpu INTEGER GENERATED ALWAYS AS (id & 63) VIRTUAL, count INTEGER NOT NULL, samples BLOB NOT NULL) STRICT;
INSERT INTO "power" VALUES(63999932821376,50,X'016364D053D151D350D1D150D3D051D152D10072D474D4D434B4B43454B4B4D4749474D4B480B21A60610D2D20C514F1D34A502AC48F2D3C62EE869F76452CE19FA69ED0F4E29CAB21932D15E82D12CDFBEEC77A76E58D2B126FE9B1F4E6094609E6EA3230303200012313232398C1C008020C301E2A00890100');
CREATE TABLE processes (
            process INTEGER PRIMARY KEY, pid INTEGER NOT NULL, started_s REAL, name TEXT, user TEXT,
            graphics INTEGER NOT NULL, listed INTEGER NOT NULL) STRICT;
INSERT INTO "processes" VALUES(0,4242,1700000000.0,'python','me',0,1);
CREATE TABLE pulse (
            id INTEGER PRIMARY KEY, at_ns INTEGER GENERATED ALWAYS AS (id >> 6) VIRTUAL,
            gpu INTEGER GENERATED ALWAYS AS (id & 63) VIRTUAL, stood_ms INTEGER NOT NULL, "sm_clock_mhz" INTEGER, "mem_clock_mhz" INTEGER, "power_mw" REAL, "power_average_mw" REAL, "temperature_c" INTEGER, "event_reasons_mask" INTEGER, "utilization_percent" REAL, "mem_utilization_percent" REAL, "memory_used_kib" REAL, "power_cap_ns" INTEGER, "sync_boost_ns" INTEGER, "sw_thermal_ns" INTEGER) STRICT;
INSERT INTO "pulse" VALUES(64000643231616,180,1920,NULL,NULL,NULL,NULL,4,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "pulse" VALUES(64013442544320,179,1935,NULL,NULL,NULL,NULL,4,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "pulse" VALUES(64026241172224,180,1920,NULL,NULL,NULL,NULL,4,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "pulse" VALUES(64039041232768,179,1905,NULL,NULL,NULL,NULL,4,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "pulse" VALUES(64051842967808,180,1935,NULL,NULL,NULL,NULL,4,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "pulse" VALUES(64064644373376,580,1980,NULL,NULL,NULL,NULL,4,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "pulse" VALUES(64103043570304,180,1965,NULL,NULL,NULL,NULL,4,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "pulse" VALUES(64115842525440,179,1875,NULL,NULL,NULL,NULL,4,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE segment (
            id INTEGER PRIMARY KEY CHECK (id = 1), boot_id TEXT NOT NULL, begin_ns INTEGER NOT NULL,
            wall_offset_ns INTEGER NOT NULL, source TEXT NOT NULL) STRICT;
INSERT INTO "segment" VALUES(1,'00000000-0000-4000-8000-000000000000',1000000000000,1700000000000000000,'synthetic');
CREATE TABLE slow (id INTEGER PRIMARY KEY, at_ns INTEGER GENERATED ALWAYS AS (id >> 6) VIRTUAL,
            gpu INTEGER GENERATED ALWAYS AS (id & 63) VIRTUAL, stood_ms INTEGER NOT NULL, "hw_thermal_ns" INTEGER, "power_brake_ns" INTEGER, "energy_mj" REAL, "memory_temperature_c" INTEGER, "temperature_margin_c" INTEGER, "ecc_corrected_count" INTEGER, "ecc_uncorrected_count" INTEGER, "remapped_rows_count" INTEGER, "remap_pending_count" INTEGER, "remap_failed_count" INTEGER, "pcie_replay_count" INTEGER, "pcie_generation_count" INTEGER, "pcie_width_count" INTEGER, "sm_activity_percent" REAL, "sm_occupancy_percent" REAL, "tensor_activity_percent" REAL, "dram_activity_percent" REAL, "power_limit_mw" REAL, "sm_clock_lock_mhz" INTEGER, "persistence_mode" INTEGER, "ecc_mode" INTEGER, "mig_mode" INTEGER, "compute_mode" INTEGER, "sm_clock_mhz" INTEGER, "mem_clock_mhz" INTEGER, "power_mw" REAL, "power_average_mw" REAL, "temperature_c" INTEGER, "event_reasons_mask" INTEGER, "utilization_percent" REAL, "mem_utilization_percent" REAL, "memory_used_kib" REAL, "power_cap_ns" INTEGER, "sync_boost_ns" INTEGER, "sw_thermal_ns" INTEGER) STRICT;
INSERT INTO "slow" VALUES(64000004511616,0,0,0,56642.0,55,37,0,0,0,0,0,0,5,16,97.123,51.234,31.415,27.182,700000.0,NULL,1,1,0,0,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE UNIQUE INDEX "idx__sqlite_migrations_migration_set_name"
    ON "_sqlite_migrations" ("migration_set", "name");
CREATE VIEW "readings_view" AS SELECT strftime('%Y-%m-%d %H:%M:%f', (at_ns + (SELECT wall_offset_ns FROM segment)) / 1e9, 'unixepoch') AS at_utc, stood_ms / 1e3 AS stood_s, gpus.uuid, "sm_clock_mhz" AS "sm_clock_mhz", "mem_clock_mhz" AS "mem_clock_mhz", "power_mw" / 1000.0 AS "power_w", "power_average_mw" / 1000.0 AS "power_average_w", "temperature_c" AS "temperature_c", "event_reasons_mask" AS "event_reasons_mask", "utilization_percent" / 100.0 AS "utilization_ratio", "mem_utilization_percent" / 100.0 AS "mem_utilization_ratio", "memory_used_kib" * 1024 AS "memory_used_bytes", "power_cap_ns" AS "power_cap_ns", "sync_boost_ns" AS "sync_boost_ns", "sw_thermal_ns" AS "sw_thermal_ns", at_ns
            FROM fast JOIN gpus USING (gpu) ORDER BY at_ns;
CREATE VIEW "pulse_readings_view" AS SELECT strftime('%Y-%m-%d %H:%M:%f', (at_ns + (SELECT wall_offset_ns FROM segment)) / 1e9, 'unixepoch') AS at_utc, stood_ms / 1e3 AS stood_s, gpus.uuid, "sm_clock_mhz" AS "sm_clock_mhz", "mem_clock_mhz" AS "mem_clock_mhz", "power_mw" / 1000.0 AS "power_w", "power_average_mw" / 1000.0 AS "power_average_w", "temperature_c" AS "temperature_c", "event_reasons_mask" AS "event_reasons_mask", "utilization_percent" / 100.0 AS "utilization_ratio", "mem_utilization_percent" / 100.0 AS "mem_utilization_ratio", "memory_used_kib" * 1024 AS "memory_used_bytes", "power_cap_ns" AS "power_cap_ns", "sync_boost_ns" AS "sync_boost_ns", "sw_thermal_ns" AS "sw_thermal_ns", at_ns
            FROM pulse JOIN gpus USING (gpu) ORDER BY at_ns;
CREATE VIEW "slow_readings_view" AS SELECT strftime('%Y-%m-%d %H:%M:%f', (at_ns + (SELECT wall_offset_ns FROM segment)) / 1e9, 'unixepoch') AS at_utc, stood_ms / 1e3 AS stood_s, gpus.uuid, "hw_thermal_ns" AS "hw_thermal_ns", "power_brake_ns" AS "power_brake_ns", "energy_mj" / 1000.0 AS "energy_j", "memory_temperature_c" AS "memory_temperature_c", "temperature_margin_c" AS "temperature_margin_c", "ecc_corrected_count" AS "ecc_corrected_count", "ecc_uncorrected_count" AS "ecc_uncorrected_count", "remapped_rows_count" AS "remapped_rows_count", "remap_pending_count" AS "remap_pending_count", "remap_failed_count" AS "remap_failed_count", "pcie_replay_count" AS "pcie_replay_count", "pcie_generation_count" AS "pcie_generation_count", "pcie_width_count" AS "pcie_width_count", "sm_activity_percent" / 100.0 AS "sm_activity_ratio", "sm_occupancy_percent" / 100.0 AS "sm_occupancy_ratio", "tensor_activity_percent" / 100.0 AS "tensor_activity_ratio", "dram_activity_percent" / 100.0 AS "dram_activity_ratio", "power_limit_mw" / 1000.0 AS "power_limit_w", "sm_clock_lock_mhz" AS "sm_clock_lock_mhz", "persistence_mode" AS "persistence_mode", "ecc_mode" AS "ecc_mode", "mig_mode" AS "mig_mode", "compute_mode" AS "compute_mode", "sm_clock_mhz" AS "sm_clock_mhz", "mem_clock_mhz" AS "mem_clock_mhz", "power_mw" / 1000.0 AS "power_w", "power_average_mw" / 1000.0 AS "power_average_w", "temperature_c" AS "temperature_c", "event_reasons_mask" AS "event_reasons_mask", "utilization_percent" / 100.0 AS "utilization_ratio", "mem_utilization_percent" / 100.0 AS "mem_utilization_ratio", "memory_used_kib" * 1024 AS "memory_used_bytes", "power_cap_ns" AS "power_cap_ns", "sync_boost_ns" AS "sync_boost_ns", "sw_thermal_ns" AS "sw_thermal_ns", at_ns
            FROM slow JOIN gpus USING (gpu) ORDER BY at_ns;
CREATE VIEW "edge_readings_view" AS SELECT strftime('%Y-%m-%d %H:%M:%f', (at_ns + (SELECT wall_offset_ns FROM segment)) / 1e9, 'unixepoch') AS at_utc, stood_ms / 1e3 AS stood_s, gpus.uuid, "power_violation_ns" AS "power_violation_ns", "thermal_violation_ns" AS "thermal_violation_ns", "sm_clock_mhz" AS "sm_clock_mhz", "mem_clock_mhz" AS "mem_clock_mhz", "power_mw" / 1000.0 AS "power_w", "power_average_mw" / 1000.0 AS "power_average_w", "temperature_c" AS "temperature_c", "event_reasons_mask" AS "event_reasons_mask", "utilization_percent" / 100.0 AS "utilization_ratio", "mem_utilization_percent" / 100.0 AS "mem_utilization_ratio", "memory_used_kib" * 1024 AS "memory_used_bytes", "power_cap_ns" AS "power_cap_ns", "sync_boost_ns" AS "sync_boost_ns", "sw_thermal_ns" AS "sw_thermal_ns", at_ns
            FROM edge JOIN gpus USING (gpu) ORDER BY at_ns;
CREATE VIEW "processes_view" AS SELECT strftime('%Y-%m-%d %H:%M:%f', (at_ns + (SELECT wall_offset_ns FROM segment)) / 1e9, 'unixepoch') AS at_utc, stood_ms / 1e3 AS stood_s, gpus.uuid, pid, name, user,
            json_extract(seat.value, '$[1]') AS memory_bytes, json_extract(seat.value, '$[2]') AS utilization_ratio,
            listed, graphics, visibility, at_ns
            FROM census JOIN gpus USING (gpu) JOIN json_each(census.present) AS seat
            JOIN processes ON processes.process = json_extract(seat.value, '$[0]') ORDER BY at_ns;
CREATE VIEW "gaps_view" AS SELECT strftime('%Y-%m-%d %H:%M:%f', (begin_ns + (SELECT wall_offset_ns FROM segment)) / 1e9, 'unixepoch') AS begin_utc,
            (end_ns - begin_ns) / 1e9 AS length_s, gpus.uuid, lane, begin_ns, end_ns FROM gaps JOIN gpus USING (gpu)
            ORDER BY begin_ns;
COMMIT;
