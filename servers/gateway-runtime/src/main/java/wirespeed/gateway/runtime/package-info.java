/**
 * The parts that both carriers share: configuration, shipped and loaded filters, cache, checks,
 * admin.
 *
 * <p>{@link wirespeed.gateway.runtime.Launcher} is the command line,
 * {@link wirespeed.gateway.runtime.GatewayRuntime} ties the parts together,
 * {@link wirespeed.gateway.runtime.ConfigReader} turns text into options and
 * {@link wirespeed.gateway.runtime.SnapshotBuilder} options into a snapshot.
 */
package wirespeed.gateway.runtime;
