-- Which GPU is hotter than other GPUs of its model at the same power?
-- Compares each GPU's median temperature with GPUs within 10 % of its power.  Needs three GPUs.
-- since: 7d
WITH gpus AS (
    SELECT gpu_uuid, gpu_name, arg_max(hostname, begun_utc) AS hostname, median(temperature_mean_c) AS temperature_c,
           median(power_mean_w) AS power_w, count(*) AS windows_count
    FROM windows WHERE begun_utc >= getvariable('since') AND begun_utc < getvariable('until') AND temperature_mean_c IS NOT NULL
      AND power_mean_w > 0 AND busy_ratio > 0.5 GROUP BY gpu_uuid, gpu_name HAVING count(*) >= 3
), compared AS (
    SELECT one.gpu_uuid, median(other.temperature_c) AS usual_c, 1.4826 * mad(other.temperature_c) AS spread_c
    FROM gpus AS one JOIN gpus AS other ON other.gpu_name = one.gpu_name AND other.gpu_uuid <> one.gpu_uuid
      AND abs(other.power_w / one.power_w - 1) <= 0.1
    GROUP BY one.gpu_uuid HAVING count(*) >= 2
)
SELECT hostname, gpu_uuid, gpu_name, temperature_c, usual_c, power_w, windows_count FROM gpus JOIN compared USING (gpu_uuid)
WHERE temperature_c > usual_c + greatest(6, 4 * spread_c) ORDER BY temperature_c - usual_c DESC, hostname, gpu_uuid
