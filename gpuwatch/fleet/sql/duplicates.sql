-- Which rows were exported twice?
-- Returns no rows, unless two export folders were merged or a machine's name changed between exports.
-- since: 3650d
SELECT boot_id, run, gpu_uuid, count(*) AS times, string_agg(DISTINCT filename, ' ') AS files FROM windows
WHERE begun_utc >= getvariable('since') AND begun_utc < getvariable('until')
GROUP BY boot_id, run, gpu_uuid HAVING count(*) > 1 ORDER BY times DESC, boot_id, run, gpu_uuid
