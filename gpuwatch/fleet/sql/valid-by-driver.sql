-- What share of windows was not valid, by driver and day?
-- Counts rows: a window over eight GPUs counts eight times.
-- since: 30d
SELECT gpu_driver_version, begun_utc::DATE AS day, count(*) AS windows_count, avg((status <> 'valid')::INT) AS not_valid_ratio
FROM windows WHERE begun_utc >= getvariable('since') AND begun_utc < getvariable('until') GROUP BY ALL ORDER BY ALL
