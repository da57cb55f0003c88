-- Which GPU differs from its model in driver, firmware, ECC, MIG or persistence?
-- Uses each GPU's latest window; the usual value is the most common value of the model.
-- since: 7d
WITH latest AS (
    SELECT gpu_uuid, arg_max(hostname, begun_utc) AS hostname, arg_max(gpu_name, begun_utc) AS gpu_name,
           arg_max(gpu_driver_version, begun_utc) AS driver, arg_max(gpu_vbios_version, begun_utc) AS vbios,
           arg_max(gpu_ecc_mode, begun_utc)::VARCHAR AS ecc, arg_max(gpu_mig_mode, begun_utc)::VARCHAR AS mig,
           arg_max(gpu_persistence_mode, begun_utc)::VARCHAR AS persistence
    FROM windows WHERE begun_utc >= getvariable('since') AND begun_utc < getvariable('until') AND gpu_uuid IS NOT NULL
    GROUP BY gpu_uuid
), settings AS (UNPIVOT latest ON driver, vbios, ecc, mig, persistence INTO NAME setting VALUE found),
usual AS (SELECT gpu_name, setting, mode(found) AS usual FROM settings GROUP BY ALL)
SELECT hostname, gpu_uuid, gpu_name, setting, found, usual FROM settings JOIN usual USING (gpu_name, setting)
WHERE found <> usual ORDER BY hostname, gpu_uuid, setting
